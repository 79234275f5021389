// The timeline, the commit chosen in it, and the rows that differ between two moments.

// A name, a color and a pattern, so that kinds differ without colors, too.
const KINDS = {
  write: ["writes", "write", ""], group: ["groups of small writes", "group", "x"],
  compaction: ["compactions", "compaction", "\\"], other: ["other commits", "other", "."],
  pending: ["pending writes", "pending", "/"],
};

// A bar for each commit and each pending write.
function bars() {
  const made = report.timeline.commits.map((row) => ({
    kind: (row.writers || []).length > 1 ? "group" : row.kind in KINDS ? row.kind : "other", row, lane: row.application,
    end: Date.parse(row.completed), begin: Date.parse(row.completed) - row.duration_s * 1000,
  }));
  const open = report.timeline.pending.map((row) => ({
    kind: "pending", row, lane: row.application, end: report.seen_ms, begin: Date.parse(row.since),
  }));
  for (const bar of [...made, ...open]) bar.lane = bar.lane || "unknown";
  return [...made, ...open].sort((a, b) => a.begin - b.begin);
}

const LANES_MAX = 60;

// Each application gets as many lanes as it has simultaneous bars.
function laned(all) {
  const lanes = [];
  for (const bar of all) {
    let lane = lanes.find((one) => one.name === bar.lane && one.end <= bar.begin);
    if (!lane && lanes.length < LANES_MAX) lanes.push(lane = { name: bar.lane });
    lane = lane || lanes.find((one) => one.name === bar.lane) || lanes[lanes.length - 1];
    lane.end = Math.max(lane.end || 0, bar.end);
    bar.on = lane;
  }
  const names = [...new Set(lanes.map((lane) => lane.name))];
  lanes.sort((a, b) => names.indexOf(a.name) - names.indexOf(b.name));
  lanes.forEach((lane, place) => { lane.place = place; });
  return lanes;
}

function told(bar) {
  const { row } = bar;
  if (bar.kind === "pending") {
    const silent = row.silent_s === null ? "" : `, silent for ${seconds(row.silent_s)}`;
    return `${who(row)}, pending since ${moment(row.since)}${silent}${row.stuck ? ", stuck?" : ""}`;
  }
  const others = (row.writers || []).length - 1;
  const more = others > 0 ? ` and ${others} more writers` : "";
  const overlaps = row.overlaps.length ? `, overlaps ${some(row.overlaps, 12)}` : "";
  const said = row.message ? `: ${row.message}` : "";
  return `commit ${row.ordinal}, version ${row.version}, ${row.operation.toLowerCase()} by ${who(row)}${more}, `
    + `${number(row.rows)} rows, ${number(row.deletes)} deletes, ${seconds(row.duration_s)}, ${moment(row.completed)}`
    + `${overlaps}${said}`;
}

const tellBar = (text) => { find("#timeline .said").textContent = text; };

function showTimeline() {
  const all = bars();
  if (!all.length) {
    tellBar("There is no commit yet.");
    find("#timeline .steps").hidden = true;
    return;
  }
  const lanes = laned(all);
  const traces = Object.entries(KINDS).map(([kind, [name, shade, shape]]) => {
    const own = all.filter((bar) => bar.kind === kind);
    return {
      type: "bar", orientation: "h", name, base: own.map((bar) => new Date(bar.begin).toISOString()),
      x: own.map((bar) => bar.end - bar.begin), y: own.map((bar) => bar.on.place), customdata: own,
      hovertext: own.map((bar) => escaped(told(bar)).replace(/(.{60,90}?) /g, "$1<br>")), hoverinfo: "text",
      marker: { ...patterned(shade, shape), line: { color: color(shade), width: 1 } },  // shows bars of milliseconds
    };
  }).filter((trace) => trace.x.length);
  const made = all.filter((bar) => bar.kind !== "pending");
  const ends = [Math.min(...made.map((bar) => bar.begin)), Math.max(...made.map((bar) => bar.end))];
  const whole = Math.max(...all.map((bar) => bar.end)) - Math.min(...all.map((bar) => bar.begin));
  const span = ends[1] - ends[0];
  // A long pending write would leave no room for the commits, so the first view shows only the commits.
  const zoomed = made.length && whole > 4 * span && { range: [ends[0] - span / 20, ends[1] + span / 20] };
  const shown = (lane, i) => (i && lanes[i - 1].name === lane.name ? "" : short(lane.name));
  const applications = new Set(lanes.map((lane) => lane.name)).size;
  const label = `Timeline: ${plural(made.length, "commit")} and ${plural(all.length - made.length, "pending write")} `
    + `by ${plural(applications, "application")}. The table History lists the commits.`;
  chart("chart-timeline", label, traces, {
    barmode: "overlay", height: Math.min(900, 130 + 26 * lanes.length), dragmode: "zoom",
    xaxis: { type: "date", ...zoomed },
    yaxis: {
      tickvals: lanes.map((lane) => lane.place), ticktext: lanes.map(shown), fixedrange: true, autorange: "reversed",
    },
  });
  find("#chart-timeline").on("plotly_click", (event) => choose(event.points[0].customdata));
  if (zoomed) tellBar("A write has been pending for long: double-click to see its begin.");
  if (!report.timeline.is_all) tellBar("The newest commits; crdt-mor history lists all.");
  enableSteps(all);
}

const STEPS = { first: () => 0, earlier: (at) => at - 1, later: (at) => at + 1, last: () => Infinity };
const KEYS = {
  ArrowLeft: "earlier", ArrowUp: "earlier", ArrowRight: "later", ArrowDown: "later", Home: "first", End: "last",
};

// Lead through all bars by button or key.
function enableSteps(all) {
  const step = (name) => {
    const at = all.indexOf(chosen), begin = at < 0 ? { earlier: all.length, later: -1 }[name] : at;
    choose(all[Math.max(0, Math.min(STEPS[name](begin), all.length - 1))]);
  };
  for (const button of document.querySelectorAll("#timeline .steps button")) {
    button.onclick = () => step(button.dataset.step);
    button.onkeydown = (event) => {
      if (!(event.key in KEYS)) return;
      event.preventDefault();
      step(KEYS[event.key]);
    };
  }
}

let chosen = null;

// Frame a bar, bring it into view, and show its commit.
function choose(bar) {
  chosen = bar;
  tellBar(told(bar));
  const { xaxis } = find("#chart-timeline")._fullLayout, [from, to] = xaxis.range.map(xaxis.r2l);
  const half = (to - from) / 2;
  const frame = {
    type: "rect", x0: bar.begin, x1: bar.end, y0: bar.on.place - 0.45, y1: bar.on.place + 0.45,
    line: { color: color("ink"), width: 2 },
  };
  const isSeen = bar.end >= from && bar.begin <= to;
  Plotly.relayout("chart-timeline", {
    shapes: [frame], ...(isSeen ? {} : { "xaxis.range": [bar.begin - half, bar.begin + half] }),
  });
  if (bar.kind !== "pending") showCommit(bar.row);
}

// --- a commit -------------------------------------------------------------------------------------------------------

function factsOf(row) {
  const wrote = (one) => `${plural(one.rows, "row")}, ${plural(one.deletes, "delete")}`;
  const said = (one) => (one.message ? `: ${one.message}` : "");
  const writers = (row.writers || []).map((one) => `${who(one)}, ${wrote(one)}${said(one)}`);
  const info = Object.entries(row.commit_info || {}).filter(([name]) => name !== "application" && name !== "message");
  return {
    version: number(row.version), operation: row.operation.toLowerCase() + (row.adopted ? " (Hudi's)" : ""),
    by: who(row), begin: moment(row.requested), completed: `${moment(row.completed)}, after ${seconds(row.duration_s)}`,
    instant: `${row.requested_at}, completed ${row.completed_at}`,
    wrote: `${wrote(row)}, ${plural(row.files, "file")}, ${bytes(row.bytes)}`,
    overlaps: some(row.overlaps, 12) || "no other commit", message: row.message || "none",
    ...(info.length ? { "commit info": info.map(([name, value]) => `${name}=${value}`).join("; ") } : {}),
    ...(writers.length > 1 ? { writers: writers.slice(0, 12).join("; ") + (writers.length > 12 ? "; …" : "") } : {}),
  };
}

function showCommit(row) {
  find("#commit form").ordinal.value = row.ordinal;
  find("#commit .said").textContent = `Commit ${row.ordinal}`;
  const list = find("#commit dl");
  list.replaceChildren();
  for (const [name, text] of Object.entries(factsOf(row))) list.append(element("dt", name), element("dd", text));
  const show = () => showDifference("#commit .rows", "#table-commit", row.version - 1, row.version);
  forget("#commit .rows", "#table-commit");
  find("#commit .show").hidden = !report.live;
  find("#commit .show").onclick = show;
  if (!report.live) show();
}

function showCommits() {
  const form = find("#commit form");
  form.onsubmit = (event) => {
    event.preventDefault();
    const row = report.timeline.commits.find((one) => String(one.ordinal) === form.ordinal.value.trim());
    if (row) { showCommit(row); return; }
    find("#commit .said").textContent = "This page has no such commit: use the ordinals of History.";
    find("#commit dl").replaceChildren();
    find("#commit .show").hidden = true;
    forget("#commit .rows", "#table-commit");
  };
  const newest = report.timeline.commits[0];
  form.hidden = !newest;
  if (newest) showCommit(newest);
  else find("#commit .said").textContent = "There is no commit yet.";
}

// --- two moments ----------------------------------------------------------------------------------------------------

const turns = {};

// text, place: where differences are shown. Each place shows the answer to its newest question.
function forget(text, place) {
  turns[place] = (turns[place] || 0) + 1;
  find(text).textContent = "";
  grid(place, "", [], []);
  return turns[place];
}

async function showDifference(text, place, before, after) {
  const said = find(text), turn = forget(text, place);
  if (!report.live) {
    said.textContent = `crdt-mor diff ${report.command_uri} ${before} ${after} prints its rows.`;
    return;
  }
  said.textContent = "reading …";
  const answer = await fetch(`diff?${new URLSearchParams({ before, after })}`).then((got) => got.json())
    .catch((error) => ({ error: `the server does not answer: ${error.message}` }));
  if (turn !== turns[place]) return;  // a newer question replaced this one
  if (answer.error) { said.textContent = answer.error; return; }
  const counts = Object.entries(answer.counts).filter(([, count]) => count);
  const found = counts.map(([change, count]) => `${number(count)} ${change}`).join(", ") || "no difference";
  const isCut = !answer.is_all || counts.reduce((sum, [, count]) => sum + count, 0) > answer.rows.length;
  const least = answer.is_all ? "" : "at least ";
  const more = isCut ? `; crdt-mor diff ${report.command_uri} ${before} ${after} prints all` : "";
  said.textContent = `Rows from ${before} to ${after}: ${least}${found}${more}.`;
  grid(place, `Rows that differ between ${before} and ${after}`, [
    ["change", (row) => row.change], ["key", (row) => row.key],
    ["values", (row) => `${row.values.map(valueOf).join(", ")}${row.more ? `, and ${number(row.more)} more` : ""}`],
  ], answer.rows);
}

const shownValue = (value) => (value === null ? "null" : value);

function valueOf({ name, before, after }) {
  if (before === undefined) return `${name} = ${shownValue(after)}`;
  if (after === undefined) return `${name} = ${shownValue(before)}`;
  return `${name}: ${shownValue(before)} → ${shownValue(after)}`;
}

function showCompare() {
  const form = find("#compare form"), commits = report.timeline.commits;
  form.before.value = commits.length > 1 ? commits[1].version : "";
  form.onsubmit = (event) => {
    event.preventDefault();
    const before = form.before.value.trim(), after = form.after.value.trim() || "now";
    if (before) showDifference("#compare .said", "#table-compare", before, after);
    else find("#compare .said").textContent = "Enter the earlier moment first.";
  };
  if (report.live) return;
  form.hidden = true;
  find("#compare .said").textContent = `Use crdt-mor diff ${report.command_uri} BEFORE AFTER, or crdt-mor ui.`;
}
