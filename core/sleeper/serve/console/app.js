/** The shell: navigation, the list of tables, the theme, and the token. */

import { getJson, hasToken, setToken } from "./api.js";
import { announce, h, loading, problem } from "./dom.js";
import { showJobs } from "./jobs_view.js";
import { showQuery } from "./query_view.js";
import { showQueues } from "./queues_view.js";
import { link, readPlace } from "./router.js";
import { showTable } from "./table_view.js";
import { showTables } from "./tables_view.js";

const THEME = "sleeper.theme";
const THEMES = ["auto", "light", "dark"];
const TOKEN_PREFIX = "#token=";
const VIEWS = { tables: showTables, query: showQuery, jobs: showJobs, queues: showQueues };
const main = document.getElementById("main");
const signIn = document.getElementById("sign-in");
let leave = new AbortController();

/** Draws the view of the address. A view that is left stops its requests. */
async function draw({ focus = true } = {}) {
    leave.abort();
    leave = new AbortController();
    const { signal } = leave;
    const { parts, query } = readPlace();
    const isTable = parts[0] === "tables" && parts.length > 1;
    const show = isTable ? showTable : VIEWS[parts[0]];
    markPlaces(parts);
    const slow = setTimeout(() => main.replaceChildren(loading()), 150);
    try {
        if (show === undefined) throw new Error(`there is no page ${parts.join("/")} in the console`);
        const content = await show({ parts, query, signal, redraw: () => draw({ focus: false }) });
        if (signal.aborted) return;
        main.replaceChildren(...[content].flat());
        const title = main.querySelector("h1");
        document.title = `${title?.textContent ?? "Console"} – Sleeper`;
        if (focus) title?.focus();
        main.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
        announce(document.title);
    } catch (error) {
        if (signal.aborted) return;
        main.replaceChildren(problem(error, () => draw()));
    } finally {
        clearTimeout(slow);
    }
}

function markPlaces(parts) {
    for (const each of document.querySelectorAll("[data-place]")) {
        mark(each, each.dataset.place === parts[0] ? "page" : null);
    }
    for (const each of document.querySelectorAll("#table-list a")) {
        mark(each, parts[0] === "tables" && each.textContent === parts[1] ? "true" : null);
    }
}

function mark(element, current) {
    if (current === null) element.removeAttribute("aria-current");
    else element.setAttribute("aria-current", current);
}

/** Lists tables beside the view. The views report a failure. */
async function listTables() {
    const list = document.getElementById("table-list");
    try {
        const { tables } = await getJson(["tables"]);
        list.replaceChildren(
            ...tables.map(({ name }) => h("li", {}, h("a", { href: link(["tables", name]) }, name))),
        );
        if (!tables.length) list.replaceChildren(h("li", { class: "dim" }, "none yet"));
    } catch {
        list.replaceChildren();
    }
    markPlaces(readPlace().parts);
}

function applyTheme(theme) {
    if (theme === "auto") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.setAttribute("data-theme", theme);
    const button = document.getElementById("theme");
    button.textContent = `Theme: ${theme}`;
    button.setAttribute("aria-label", `Theme: ${theme}. Change the theme`);
}

function changeTheme() {
    const theme = THEMES[(THEMES.indexOf(readTheme()) + 1) % THEMES.length];
    localStorage.setItem(THEME, theme);
    applyTheme(theme);
}

function readTheme() {
    const theme = localStorage.getItem(THEME);
    return THEMES.includes(theme) ? theme : "auto";
}

/** Asks for the token. Several requests may fail at once; the first of them opens the dialog. */
function askForToken() {
    if (signIn.open) return;
    const wrong = document.getElementById("sign-in-problem");
    wrong.textContent = "The server refused this token.";
    wrong.hidden = !hasToken();
    setToken(null);
    updateSignOut();
    signIn.showModal();
}

function useToken(event) {
    event.preventDefault();
    setToken(document.getElementById("token").value.trim());
    document.getElementById("token").value = "";
    signIn.close();
    start();
}

/** Takes the token out of the address that `sleeper serve` printed, so that no history keeps it. */
function takeToken() {
    if (!location.hash.startsWith(TOKEN_PREFIX)) return;
    setToken(decodeURIComponent(location.hash.slice(TOKEN_PREFIX.length)));
    history.replaceState(null, "", location.pathname + location.search);
}

function updateSignOut() {
    document.getElementById("sign-out").hidden = !hasToken();
}

function start() {
    updateSignOut();
    listTables();
    draw({ focus: false });
}

document.getElementById("host").textContent = location.host;
document.getElementById("theme").addEventListener("click", changeTheme);
document.getElementById("sign-in-form").addEventListener("submit", useToken);
document.getElementById("sign-out").addEventListener("click", () => {
    setToken(null);
    location.reload();
});
document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
});
window.addEventListener("hashchange", () => {
    takeToken();
    draw();
});
window.addEventListener("unauthorized", askForToken);
applyTheme(readTheme());
takeToken();
start();
