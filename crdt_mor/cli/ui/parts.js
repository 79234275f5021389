// Parts of the page: texts, tables, charts. Texts of the table enter it only by `textContent`, or escaped in a chart.
"use strict";
const report = JSON.parse(document.getElementById("report").textContent);
const find = (selector) => document.querySelector(selector);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// --- small things ---------------------------------------------------------------------------------------------------

function element(tag, text, kind) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function bytes(count) {
  let size = count, unit = 0;
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  while (size >= 1024 && unit < units.length - 1) { size /= 1024; unit += 1; }
  return `${unit ? size.toFixed(1) : size} ${units[unit]}`;
}

const number = (count) => (count === null || count === undefined ? "" : count.toLocaleString("en"));
const moment = (text) => (text ? `${text.slice(0, 23).replace("T", " ").replace(/[+Z].*$/, "")} UTC` : "");
const some = (items, most) => items.slice(0, most).join(", ") + (items.length > most ? ", …" : "");
const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
const escaped = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

function seconds(value) {
  if (value === null || value === undefined) return "";
  if (value < 60) return `${value.toFixed(value < 10 ? 3 : 0)} s`;
  const minutes = Math.round(value / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const who = (row) => (row.host ? `${row.application} (${row.pid} on ${row.host})` : row.application || "unknown");

function link(text, label, act) {
  const made = element("button", text, "link");
  made.type = "button";
  if (label) made.ariaLabel = label;
  made.onclick = act;
  return made;
}

// Show a section and move the focus to its heading.
function goTo(section) {
  const heading = find(`${section} h2`);
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
  find(section).scrollIntoView();
}

// columns: pairs of a heading and a function from row to cell: a text, a number or an element.
function grid(place, label, columns, rows) {
  const region = find(place);
  region.replaceChildren();
  for (const name of ["role", "aria-label", "tabindex"]) region.removeAttribute(name);
  if (!rows.length) return;
  const table = element("table"), head = table.createTHead().insertRow(), body = table.createTBody();
  const numeric = columns.map(([, cell]) => typeof cell(rows[0]) === "number");
  columns.forEach(([name], i) => {
    const made = element("th", name, numeric[i] ? "number" : "");
    made.scope = "col";
    head.append(made);
  });
  for (const row of rows) {
    const line = body.insertRow();
    columns.forEach(([, cell], i) => {
      const value = cell(row), made = element("td", undefined, numeric[i] ? "number" : "");
      if (typeof value === "number") made.textContent = number(value);
      else made.append(value instanceof Node ? value : element("div", value));
      line.append(made);
    });
  }
  table.ariaLabel = label;
  region.role = "region";
  region.ariaLabel = `${label}, scrollable`;
  region.tabIndex = 0;
  region.replaceChildren(table);
}

const LABEL_MAX = 24, LABEL_MAX_ON_PHONES = 13;

// Shorten a label of a chart in the middle, because long names often differ at their end.
function short(text) {
  const half = Math.floor((window.innerWidth < 600 ? LABEL_MAX_ON_PHONES : LABEL_MAX) / 2);
  return escaped(text.length > 2 * half + 1 ? `${text.slice(0, half)}…${text.slice(-half)}` : text);
}

const patterned = (shade, shape) => ({
  color: color(shade), pattern: { shape, fgcolor: color("ground"), fillmode: "overlay", size: 6, solidity: 0.2 },
});

// label: the chart in words, for readers who do not see it.
function chart(place, label, traces, layout) {
  const figure = document.getElementById(place);
  figure.role = "figure";
  figure.ariaLabel = label;
  const axis = { gridcolor: color("line"), zerolinecolor: color("line"), automargin: true };
  const font = { color: color("ink"), family: getComputedStyle(document.body).fontFamily, size: 12 };
  const drawn = Plotly.newPlot(place, traces, {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font, bargap: 0.25, hovermode: "closest",
    margin: { l: 60, r: 20, t: 64, b: 40 }, legend: { orientation: "h", yanchor: "bottom", y: 1 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: color("faint"), activecolor: color("ink") },
    ...layout, xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis },
  }, {
    responsive: true, displaylogo: false,  // only plotly buttons without links to other sites
    modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "autoScale2d", "toImage"]],
  });
  for (const drawing of figure.querySelectorAll(".main-svg")) drawing.ariaHidden = "true";
  return drawn;
}

