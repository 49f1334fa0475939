// What the unit tests call: functions without a page.
// SPDX-License-Identifier: Apache-2.0
export * from "./text";
export * from "./ansi";
export * from "./csv";
export * from "./format";
export * from "./graph";
export * from "./notebook";
export * from "./logwindow";
