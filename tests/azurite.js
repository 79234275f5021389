// Azurite looks every ten minutes for what nothing names any more. Where thousands of objects were put, it answers nobody for
// minutes meanwhile. It ends with the tests and all that it holds, so it does not look at all.
const { realpathSync } = require("fs");
const { dirname, join } = require("path");
const LONGEST = 2 ** 31 - 1; // of what setTimeout takes
require(join(dirname(realpathSync(process.argv[1])), "utils", "constants.js")).DEFAULT_GC_INTERVAL_MS = LONGEST;
