// @ts-check
/**
 * The page's small pictures: lines on a field of 24 by 24.
 * @module
 */

import { draw } from "./dom.js";

/** @type {Record<string, string>} */
const PATHS = {
  clock: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 7v5l3 2",
  tick: "M5 13l4 4L19 7",
  ticks: "M2 13l4 4L16 7M11 16l1 1L22 7",
  box: "M4 8h16v11H4zM4 8l3-4h10l3 4M9 12h6",
  question: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM9.5 9.5a2.5 2.5 0 1 1 3.5 2.3c-.7.4-1 .8-1 1.7M12 16.5v.1",
  cross: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 7.5v5.5M12 16.5v.1",
  lock: "M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 7 0v3",
  pen: "M4 20l1-4L16 5l3 3L8 19z",
  warning: "M12 4l9 16H3zM12 10v4.5M12 17v.1",
  person: "M12 4a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM4.5 20a7.5 7.5 0 0 1 15 0",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  close: "M6 6l12 12M18 6L6 18",
  verified: "M12 3l7.5 3v6c0 4.5-3 7.5-7.5 9-4.5-1.500-7.500-4.500-7.500-9V6zM8.500 12l2.500 2.500L15.500 10",
};

/** @param {string} name One of `PATHS`. */
export function icon(name) {
  return draw("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true", focusable: "false" }, draw("path", { d: PATHS[name] }));
}
