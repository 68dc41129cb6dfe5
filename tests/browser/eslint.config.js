/* Each view is linted as the page gets it: common.js and its own file in one module. */
import js from "@eslint/js";
import globals from "globals";

export default [
  js.configs.recommended,
  {
    languageOptions: { globals: globals.browser },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: { "no-shadow": "error", eqeqeq: "error", "prefer-const": "error", "no-var": "error" },
  },
];
