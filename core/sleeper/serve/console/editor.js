/**
 * The editor of a statement: a text area over its coloured text, with a list of suggestions.
 *
 * While the list is open, the text area is a combobox: the arrow keys choose, Enter and Tab take, and
 * Escape closes. Otherwise Tab leaves the editor, so that the keyboard is never trapped.
 */

import { suggest, tokens, wordAt } from "./completion.js";
import { h } from "./dom.js";

/** Returns the editor: `element`, `value`, `setValue(text)` and `focus()`. */
export function makeEditor({ value, readNames, onRun, onCancel, onChange }) {
    const paint = h("pre", { class: "paint", "aria-hidden": "true" });
    const list = h("ul", {
        id: "suggestions",
        class: "suggestions",
        role: "listbox",
        "aria-label": "Suggestions",
        hidden: true,
    });
    const area = h("textarea", {
        id: "statement",
        class: "statement",
        rows: "7",
        spellcheck: "false",
        autocapitalize: "off",
        autocomplete: "off",
        "aria-label": "SQL statement",
        "aria-describedby": "editor-help",
        value,
        oninput: () => change(true),
        onkeydown: handleKey,
        onscroll: alignPaint,
        onblur: closeList,
    });
    let items = [];
    let chosen = 0;
    let word = null;

    function change(isTyped) {
        paint.replaceChildren(
            ...[...tokens(area.value)].map(({ text, kind }) => h("span", { class: `t-${kind}` }, text)),
            "\n",
        );
        alignPaint();
        onChange(area.value);
        if (isTyped) update(false);
    }

    function alignPaint() {
        paint.scrollTop = area.scrollTop;
        paint.scrollLeft = area.scrollLeft;
    }

    /** Shows suggestions for the word at the caret; for an empty word only if they are asked for. */
    function update(isAsked) {
        const caret = area.selectionStart;
        word = caret === area.selectionEnd ? wordAt(area.value, caret) : null;
        const { tables, columns } = readNames(area.value);
        items = word && (word.word || isAsked) ? suggest(area.value, word, tables, columns) : [];
        chosen = 0;
        if (items.length) openList();
        else closeList();
    }

    function openList() {
        list.replaceChildren(
            ...items.map((each, index) =>
                h(
                    "li",
                    {
                        id: `suggestion-${index}`,
                        role: "option",
                        "aria-selected": String(index === chosen),
                        class: each.kind,
                        onmousedown: (event) => {
                            event.preventDefault();
                            take(index);
                        },
                    },
                    h("span", { class: "suggestion" }, each.text),
                    h("span", { class: "dim" }, each.about || each.kind),
                ),
            ),
        );
        list.hidden = false;
        placeList();
        setAttributes({
            role: "combobox",
            "aria-autocomplete": "list",
            "aria-expanded": "true",
            "aria-controls": list.id,
        });
        choose(chosen);
    }

    function closeList() {
        list.hidden = true;
        setAttributes({
            role: null,
            "aria-autocomplete": null,
            "aria-expanded": null,
            "aria-controls": null,
            "aria-activedescendant": null,
        });
    }

    function choose(index) {
        chosen = (index + items.length) % items.length;
        [...list.children].forEach((each, at) => each.setAttribute("aria-selected", String(at === chosen)));
        list.children[chosen].scrollIntoView({ block: "nearest" });
        setAttributes({ "aria-activedescendant": `suggestion-${chosen}` });
    }

    function take(index) {
        area.setSelectionRange(word.start, area.selectionEnd);
        // Unlike setRangeText, this can be undone.
        if (!document.execCommand("insertText", false, items[index].insert)) {
            area.setRangeText(items[index].insert, word.start, area.selectionEnd, "end");
            change(false);
        }
        closeList();
    }

    /** Places the list under the word, whose position the coloured text has. */
    function placeList() {
        const range = document.createRange();
        let rest = word.start;
        for (const each of paint.childNodes) {
            const text = each.firstChild ?? each;
            if (rest <= text.length) {
                range.setStart(text, rest);
                break;
            }
            rest -= text.length;
        }
        const box = area.parentElement.getBoundingClientRect();
        const spot = range.getBoundingClientRect();
        const known = spot.height > 0 ? spot : { left: box.left + 14, bottom: box.top + 36 };
        const left = Math.max(0, Math.min(known.left - box.left - 10, box.width - list.offsetWidth - 4));
        list.style.setProperty("left", `${left}px`);
        list.style.setProperty("top", `${Math.min(known.bottom - box.top + 4, box.height)}px`);
    }

    function handleKey(event) {
        const isOpen = !list.hidden;
        const keys = {
            ArrowDown: isOpen && (() => choose(chosen + 1)),
            ArrowUp: isOpen && (() => choose(chosen - 1)),
            Tab: isOpen && !event.shiftKey && (() => take(chosen)),
            Enter:
                event.ctrlKey || event.metaKey
                    ? () => {
                          closeList();
                          onRun();
                      }
                    : isOpen && (() => take(chosen)),
            Escape: isOpen ? closeList : onCancel,
            " ": event.ctrlKey && (() => update(true)),
        };
        const act = keys[event.key];
        if (!act) return;
        event.preventDefault();
        act();
    }

    function setAttributes(values) {
        for (const [name, text] of Object.entries(values)) {
            if (text === null) area.removeAttribute(name);
            else area.setAttribute(name, text);
        }
    }

    change(false);
    return {
        element: h("div", { class: "editor" }, paint, area, list),
        get value() {
            return area.value;
        },
        setValue(text) {
            area.value = text;
            change(false);
        },
        focus() {
            area.focus();
        },
    };
}
