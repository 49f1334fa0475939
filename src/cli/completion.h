/* SPDX-License-Identifier: Apache-2.0 */
/* Completion scripts, one printer a shell, made from the command and option tables. */
#pragma once

void forge_completion_bash(void);
void forge_completion_zsh(void);
