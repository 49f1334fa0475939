/* SPDX-License-Identifier: Apache-2.0 */
/* Printers of completion scripts, made from the command and option tables. */
#pragma once

void forge_completion_bash(void);
void forge_completion_zsh(void);
