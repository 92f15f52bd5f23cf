// Preloaded into a Node server whose answers are compared between runs: its clock stands still, its chance repeats.
"use strict";
const crypto = require("node:crypto");
const { syncBuiltinESMExports } = require("node:module");

const NOW = 1764000000000;
const RealDate = Date;
globalThis.Date = class Date extends RealDate {
  constructor(...given) {
    super(...(given.length ? given : [NOW]));
  }
  static now() {
    return NOW;
  }
};
Math.random = () => 0.5;

let count = 0;
crypto.randomUUID = () => `00000000-0000-4000-8000-${String(++count).padStart(12, "0")}`;
crypto.randomBytes = (size) => Buffer.alloc(size, ++count);
syncBuiltinESMExports();
