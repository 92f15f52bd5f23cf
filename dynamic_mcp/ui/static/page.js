// What the page does beyond links and forms, which work without it: keys, swapping parts of the page, and what is new.
// A part is an element with an id; the server sends it alone if a request has its id in `x-fragment`.

const root = document.documentElement;
const html = window.trustedTypes
  ? trustedTypes.createPolicy("page", { createHTML: (text) => text }) // only what our own server has rendered
  : { createHTML: (text) => text };
const say = (text) => { const said = document.getElementById("said"); if (said) said.textContent = text; };

// --- parts ------------------------------------------------------------------------------------------------

// What was exchanged is `.swapped` for so long: a click that follows at once was meant for what was there before.
const MEANT_AFTER_MS = 500;

function swap(id, text) {
  const old = document.getElementById(id);
  if (!old) return;
  const opened = new Set([...old.querySelectorAll("details[open][id]")].map((each) => each.id));
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const mark = focused && (focused.id || focused.getAttribute("href") || focused.name);
  const box = document.createElement("template");
  box.innerHTML = html.createHTML(text);
  const now = box.content.getElementById(id);
  if (!now) return showNotice("!That cannot be shown here. Reload the page."); // an answer that is no part of it
  old.replaceWith(box.content);
  now.classList.add("swapped");
  setTimeout(() => now.classList.remove("swapped"), MEANT_AFTER_MS);
  for (const each of opened) document.getElementById(each)?.setAttribute("open", "");
  if (mark) {
    const again = [...now.querySelectorAll("a, button, input, select, textarea, [tabindex]")];
    again.find((each) => mark === (each.id || each.getAttribute("href") || each.name))?.focus({ preventScroll: true });
  }
  prepare(now);
}

async function fetchPart(id, url = location.href, options = {}) {
  const answer = await fetch(url, { ...options, headers: { "x-fragment": id, ...options.headers } });
  if (answer.status === 401) return location.reload();
  if (options.isOurIdea && isBusy(document.getElementById(id))) return null; // somebody went there meanwhile
  const notice = answer.headers.get("x-notice");
  if (notice) showNotice(decodeURIComponent(notice));
  if (answer.status !== 204) swap(id, await answer.text());
  return answer;
}

function showNotice(text) {
  const isBad = text.startsWith("!");
  let note = document.querySelector("main > .notice");
  if (!note) {
    note = document.createElement("p");
    document.getElementById("said").after(note);
  }
  note.className = isBad ? "notice bad" : "notice";
  note.setAttribute("role", isBad ? "alert" : "status");
  note.textContent = isBad ? text.slice(1) : text;
}

// --- what is new -------------------------------------------------------------------------------------------

// Parts with `data-live` are exchanged at once unless somebody is busy in them; lists with `data-list` never move by
// themselves: a button says that there is something new.
async function showNews() {
  document.getElementById("news").hidden = true;
  for (const each of document.querySelectorAll("[data-live], [data-list]")) if (each.id) await fetchPart(each.id);
  say("The page shows what has changed.");
}

function isBusy(part) {
  return part?.matches(":hover, :focus-within") || part?.querySelector("dialog[open]") != null;
}

let changes = 0;
async function take(state) {
  for (const badge of document.querySelectorAll("[data-count]")) {
    const count = state.counts[badge.dataset.count] || 0;
    badge.hidden = !count;
    badge.querySelector(".number").textContent = count;
  }
  const title = document.title.replace(/^\(\d+\) /, "");
  const before = document.title;
  document.title = state.waiting ? `(${state.waiting}) ${title}` : title;
  if (before !== document.title) say(state.waiting ? `${state.waiting} waiting` : "Nothing waits");
  if (state.changes > changes) {
    const isEmpty = (list) => list.querySelector(".empty") !== null; // in which nothing can move
    let isHeld = [...document.querySelectorAll("[data-list]")].some((list) => !isEmpty(list));
    for (const each of document.querySelectorAll("[data-live], [data-list]")) {
      if (each.hasAttribute("data-list") && !isEmpty(each)) continue;
      if (isBusy(each) || (each.id && await fetchPart(each.id, location.href, { isOurIdea: true }) === null)) isHeld = true;
    }
    document.getElementById("news").hidden = !isHeld;
  }
  changes = state.changes;
  root.dataset.stream = "open";
}

function listen() {
  const path = `${root.dataset.base}/events?section=${encodeURIComponent(root.dataset.section)}&path=${encodeURIComponent(location.pathname)}`;
  const stream = new EventSource(path);
  stream.addEventListener("state", (event) => take(JSON.parse(event.data)));
  stream.addEventListener("open", () => {
    changes = 0;
    for (const each of document.querySelectorAll("[data-running]")) fetchPart(each.id); // it may have ended meanwhile
  });
  stream.addEventListener("error", () => { root.dataset.stream = "closed"; });
  window.addEventListener("pagehide", () => stream.close());
  window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); }); // the stream has ended
}

// --- forms ------------------------------------------------------------------------------------------------

// A form with `data-part` sends itself and exchanges that part of the page with what comes of it.
async function send(form, button, part) {
  const fields = new URLSearchParams(new FormData(form, button));
  button?.setAttribute("aria-busy", "true");
  try {
    if (form.method === "get") {
      const url = `${form.getAttribute("action")}?${fields}`;
      await fetchPart(part, url);
      history.replaceState(null, "", url);
    } else {
      const action = button?.getAttribute("formaction") || form.action;
      const answer = await fetchPart(part, action, { method: "POST", body: fields });
      // where the action has led, as long as it is this page: what it shows is fetched from there from now on
      if (answer?.redirected && new URL(answer.url).pathname === location.pathname) history.replaceState(null, "", answer.url);
    }
  } catch {
    showNotice("!The server did not answer. Try again.");
  } finally {
    button?.removeAttribute("aria-busy");
    sent.delete(form);
  }
}

const sent = new WeakSet();
document.addEventListener("submit", (event) => {
  const form = event.target;
  // a second click does not act a second time, nor on what has come in the place of what was there
  if (form.method === "post" && sent.has(form)) return event.preventDefault();
  if (form.method === "post" && form.closest(".swapped")) {
    showNotice("The page changed in that moment, so nothing was sent. Look again, then press it again.");
    return event.preventDefault();
  }
  const question = event.submitter?.dataset.confirm;
  if (question && !confirm(question)) return event.preventDefault();
  if (form.method === "post") sent.add(form);
  const part = event.submitter?.dataset.part || form.dataset.part;
  if (!part) return;
  event.preventDefault();
  send(form, event.submitter, part);
});

// --- keys -------------------------------------------------------------------------------------------------

const rows = () => [...document.querySelectorAll("[data-row]")];
function move(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((each) => each.classList.contains("current"));
  const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
  all[at]?.classList.remove("current");
  next.classList.add("current");
  const link = next.querySelector("a, button, summary");
  (link || next).focus();
  next.scrollIntoView({ block: "nearest" });
}

let isGoing = false;
function go(letter) {
  const links = [...document.querySelectorAll(".side nav a")];
  const found = links.filter((each) => each.querySelector("span").textContent.toLowerCase().startsWith(letter));
  const at = found.findIndex((each) => each.hasAttribute("aria-current"));
  if (found.length) location.href = found[(at + 1) % found.length].href;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, [contenteditable]")) return;
  if (isGoing) {
    isGoing = false;
    return go(event.key.toLowerCase());
  }
  const does = {
    "/": () => document.querySelector("[data-search]")?.focus(),
    "?": () => document.getElementById("help").showModal(),
    j: () => move(1),
    k: () => move(-1),
    r: showNews,
    g: () => { isGoing = true; setTimeout(() => { isGoing = false; }, 1500); },
  }[event.key];
  if (!does || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  does();
});

// --- small things -----------------------------------------------------------------------------------------

function prepare(part) {
  for (const button of part.querySelectorAll("[data-copy]")) button.hidden = !navigator.clipboard;
  for (const each of part.querySelectorAll("[data-script]")) each.hidden = false; // of no use without a script
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
});

const units = [["y", 31536000], ["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
function distance(seconds) {
  const [unit, length] = units.find((each) => Math.abs(seconds) >= each[1]) || ["", 0];
  if (!length) return "now";
  const number = Math.trunc(Math.abs(seconds) / length);
  return seconds > 0 ? `in ${number} ${unit}` : `${number} ${unit} ago`;
}
setInterval(() => {
  for (const each of document.querySelectorAll("time[data-at]")) each.textContent = distance(each.dataset.at - Date.now() / 1000);
}, 10000);

document.querySelector("#news button")?.addEventListener("click", showNews);
prepare(document);
if (root.dataset.section !== undefined) listen();
