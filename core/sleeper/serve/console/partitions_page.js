/** The partition tree of a table: a picture in which width is size, and a list with the same numbers. */

import { getJson } from "./api.js";
import { dataTable } from "./data_table.js";
import { choice, field, h, picture, svg } from "./dom.js";
import { bytes, count, plural } from "./format.js";
import { link, replacePlace } from "./router.js";

const PARTITIONS_MAX = 400;
const LEVELS_MAX = 12;
const ROW_HEIGHT = 34;
const LABEL_WIDTH_MIN = 64;
const CHARACTER_WIDTH = 6.6;
const SIZES = { rows: "rows", bytes: "size", leaves: "leaf partitions" };
// The smallest share of the width that a leaf gets, of that of an average leaf.
const LEAF_SHARE_MIN = 0.15;

export async function showPartitions({ table, query, signal, redraw }) {
    const root = query.get("root");
    const size = SIZES[query.get("size")] ? query.get("size") : "rows";
    const answer = await getJson(
        ["tables", table.name, "partitions"],
        { root, limit: PARTITIONS_MAX },
        signal,
    );
    const nodes = buildTree(answer.tree);
    const changeSize = (value) => {
        replacePlace(["tables", table.name, "partitions"], { root, size: value });
        redraw();
    };
    const whole = link(["tables", table.name, "partitions"], { size });
    const about = `${plural(answer.partitions, "partition")}, ${plural(answer.leaves, "leaf", "leaves")}`;
    const omitted = Number(answer.partitions) - answer.tree.length;
    return [
        h(
            "div",
            { class: "bar" },
            h(
                "p",
                { class: "about" },
                about,
                omitted > 0 ? `; the upper ${count(answer.tree.length)} are shown` : "",
            ),
            root ? h("a", { class: "button", href: whole }, "Whole tree") : "",
            field("Width shows", choice(Object.entries(SIZES), size, changeSize)),
        ),
        picture(
            (width) => drawTree(nodes, size, table.name, width),
            "Each level divides the keys of the one above. A leaf of a stronger colour has more rows.",
            signal,
        ),
        dataTable(`Partitions of ${table.name}`, listColumns(table.name, nodes), walk(nodes[0])),
    ];
}

/** Links nodes to their children. */
function buildTree(tree) {
    const byId = new Map();
    for (const each of tree) {
        const parent = byId.get(each.parent);
        const node = { ...each, below: [], level: parent ? parent.level + 1 : 0 };
        parent?.below.push(node);
        byId.set(each.partition, node);
    }
    return [...byId.values()];
}

function drawTree(nodes, size, name, fullWidth) {
    const [top] = nodes;
    const total = Number(top[size]) || 1;
    const least = (LEAF_SHARE_MIN * total) / Math.max(1, Number(top.leaves));
    const weigh = (node) => Number(node[size]) + least * Number(node.leaves);
    const largest = Math.max(1, ...nodes.map((each) => Number(each.rows) / Math.max(1, Number(each.leaves))));
    const levels = Math.min(LEVELS_MAX, 1 + Math.max(...nodes.map((each) => each.level)));
    const shapes = [];
    const place = (node, x, width) => {
        if (node.level >= levels) return;
        shapes.push(drawNode(node, x, width, largest, name, size));
        let left = x;
        const sum = node.below.reduce((weight, each) => weight + weigh(each), 0) || 1;
        for (const each of node.below) {
            const share = (width * weigh(each)) / sum;
            place(each, left, share);
            left += share;
        }
    };
    place(top, 0, fullWidth);
    const height = levels * ROW_HEIGHT;
    const label = `Partition tree of ${name}: the list below has the same numbers`;
    // Links to the partitions below a large tree must stay reachable, so it is a group, not an image.
    const role = shapes.some((each) => each.tagName === "a") ? "group" : "img";
    return svg(
        "svg",
        {
            viewBox: `0 0 ${fullWidth} ${height}`,
            width: fullWidth,
            height,
            role,
            "aria-label": label,
            class: "icicle",
        },
        ...shapes,
    );
}

function drawNode(node, x, width, largest, name, size) {
    const y = node.level * ROW_HEIGHT;
    const density = Number(node.rows) / Math.max(1, Number(node.leaves)) / largest;
    const kind = node.leaf ? "leaf" : "inner";
    const box = svg("rect", {
        x: x + 0.75,
        y: y + 0.75,
        width: Math.max(0.5, width - 1.5),
        height: ROW_HEIGHT - 1.5,
        rx: 3,
        class: kind,
    });
    if (node.leaf) box.style.setProperty("--density", `${Math.round(8 + 50 * density)}%`);
    const text = width >= LABEL_WIDTH_MIN ? label(node, size, width) : "";
    const title = `${node.partition}: ${node.keys}\n${sizes(node)}`;
    const drawn = svg("g", {}, svg("title", {}, title), box);
    if (text) drawn.append(svg("text", { x: x + 9, y: y + ROW_HEIGHT / 2 + 4 }, text));
    const isOpen = node.leaf || node.below.length || !Number(node.children);
    if (isOpen) return drawn;
    const deeper = link(["tables", name, "partitions"], { root: node.partition, size });
    return svg("a", { href: deeper, "aria-label": `Open partition ${node.partition}` }, drawn);
}

function label(node, size, width) {
    const range = node.keys;
    const value = size === "bytes" ? bytes(node.bytes) : count(node[size]);
    const room = Math.floor((width - 18) / CHARACTER_WIDTH);
    const whole = `${range} · ${value}`;
    if (whole.length <= room) return whole;
    return range.length <= room ? range : `${range.slice(0, Math.max(1, room - 1))}…`;
}

function sizes(node) {
    const own =
        !node.leaf && Number(node.ownReferences)
            ? `, ${plural(node.ownReferences, "file")} not pushed down to leaves`
            : "";
    return `${plural(node.rows, "row")}, ${bytes(node.bytes)}, ${plural(node.references, "file reference")}, ${plural(node.leaves, "leaf", "leaves")}${own}`;
}

function* depthFirst(node) {
    yield node;
    for (const each of node.below) yield* depthFirst(each);
}

function walk(top) {
    return top ? [...depthFirst(top)] : [];
}

function listColumns(name, nodes) {
    const largest = Math.max(1, ...nodes.filter((each) => each.leaf).map((each) => Number(each.rows)));
    return [
        { name: "partition", title: "Partition", value: (node) => partitionName(node, name) },
        { name: "keys", title: "Keys", kind: "code" },
        { name: "rows", title: "Rows", kind: "count" },
        { name: "bytes", title: "Size", kind: "bytes" },
        { name: "references", title: "File references", kind: "count", minor: true },
        { name: "leaves", title: "Leaves", kind: "count", minor: true },
        {
            name: "share",
            title: "Rows of the leaf",
            minor: true,
            value: (node) => (node.leaf ? rowsBar(node, largest) : ownText(node)),
        },
    ];
}

function partitionName(node, name) {
    const text = h("span", { class: "node", vars: { "--level": String(Math.min(node.level, LEVELS_MAX)) } });
    const closed = !node.leaf && !node.below.length && Number(node.children);
    text.append(
        closed
            ? h("a", { href: link(["tables", name, "partitions"], { root: node.partition }) }, node.partition)
            : node.partition,
    );
    return text;
}

function rowsBar(node, largest) {
    return h("span", {
        class: "meter wide",
        vars: { "--share": `${(100 * Number(node.rows)) / largest}%` },
        "aria-hidden": "true",
    });
}

function ownText({ ownReferences }) {
    return Number(ownReferences)
        ? h("span", { class: "dim" }, `${plural(ownReferences, "file")} not pushed down`)
        : "";
}
