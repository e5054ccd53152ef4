// SPDX-License-Identifier: MIT
// Reads a page from standard input and prints it as it is after its scripts ran, by jsdom. Fails where a script does, or where
// the page loads something.
"use strict";
const {JSDOM, ResourceLoader, VirtualConsole} = require("jsdom");

const faults = [];
class Loader extends ResourceLoader {
  fetch(url) {
    faults.push(`loads ${url}`);
    return Promise.resolve(Buffer.from(""));
  }
}
const messages = new VirtualConsole();
messages.on("jsdomError", error => faults.push(error.stack ?? String(error)));
const page = new JSDOM(require("fs").readFileSync(0, "utf8"), {runScripts: "dangerously", resources: new Loader(), virtualConsole: messages});
process.stdout.write(page.serialize());
if (faults.length > 0) {
  process.stderr.write(faults.join("\n") + "\n");
  process.exitCode = 1;
}
