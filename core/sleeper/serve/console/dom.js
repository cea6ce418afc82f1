/** Builds elements. Text is only ever set as text, so data can contain no markup. */

const SVG = "http://www.w3.org/2000/svg";

/** Returns an element with attributes, listeners (`onclick`), CSS variables (`vars`), children. */
export function h(tag, attributes = {}, ...children) {
    return fill(document.createElement(tag), attributes, children);
}

/** Returns an SVG element. */
export function svg(tag, attributes = {}, ...children) {
    return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
        if (value === undefined || value === null || value === false) continue;
        if (typeof value === "function") element.addEventListener(name.slice(2), value);
        else if (name === "vars") setVariables(element, value);
        else if (name === "value") element.value = value;
        else element.setAttribute(name, value === true ? "" : String(value));
    }
    element.append(...children.flat().filter((each) => each !== null && each !== undefined));
    return element;
}

function setVariables(element, values) {
    for (const [name, value] of Object.entries(values)) element.style.setProperty(name, value);
}

/** Announces a change to screen readers. */
export function announce(text) {
    document.getElementById("announcer").textContent = text;
}

/** Returns the heading of a view, with text under it and actions beside it. */
export function heading(title, about = null, ...actions) {
    const titles = h("div", { class: "titles" }, h("h1", { tabindex: "-1" }, title));
    if (about !== null) titles.append(h("p", { class: "about" }, about));
    return h("div", { class: "heading" }, titles, h("div", { class: "actions" }, ...actions));
}

/** Returns a panel with a heading. */
export function panel(title, ...children) {
    return h("section", { class: "panel" }, h("h2", {}, title), ...children);
}

/** Returns a panel for a place without data: a heading, and commands or links to get some. */
export function empty(title, ...children) {
    return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), ...children);
}

/** Returns a figure that draws its picture, a function of the width, again when the width changes. */
export function picture(draw, caption, signal) {
    const place = h("div", { class: "picture" });
    let width = 0;
    const observer = new ResizeObserver(() => {
        if (!place.clientWidth || place.clientWidth === width) return;
        width = place.clientWidth;
        place.replaceChildren(draw(width));
    });
    observer.observe(place);
    signal.addEventListener("abort", () => observer.disconnect());
    return h("figure", {}, place, caption && h("figcaption", {}, caption));
}

/** Returns lines of a command that can be selected. */
export function command(text) {
    return h("pre", { class: "command", tabindex: "0", "aria-label": "Command" }, text);
}

/** Returns numbers with their names. */
export function facts(pairs) {
    const shown = pairs.filter(([, value]) => value !== null && value !== undefined);
    return h(
        "dl",
        { class: "facts" },
        ...shown.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
    );
}

/** Returns a label above a control. */
export function field(name, control, hint = null) {
    return h(
        "label",
        { class: "field" },
        h("span", {}, name),
        control,
        hint === null ? null : h("small", {}, hint),
    );
}

/** Returns a select of [value, text] pairs. */
export function choice(options, selected, onchange) {
    const items = options.map(([value, text]) => h("option", { value, selected: value === selected }, text));
    return h("select", { onchange: (event) => onchange && onchange(event.target.value) }, ...items);
}

/** Returns a message for a failure, with a button that tries again. */
export function problem(error, retry = null) {
    const again = retry && h("button", { type: "button", onclick: retry }, "Try again");
    return h("div", { class: "problem", role: "alert" }, h("p", {}, error.message), again);
}

/** Returns a placeholder that is shown while data is loading. */
export function loading(text = "Loading…") {
    return h(
        "div",
        { class: "loading", role: "status" },
        h("span", { class: "spinner", "aria-hidden": "true" }),
        text,
    );
}
