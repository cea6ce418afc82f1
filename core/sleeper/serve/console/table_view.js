/** One table: its size, and a page each for columns, rows, partitions, files, history and followers. */

import { getJson } from "./api.js";
import { dataTable } from "./data_table.js";
import { command, empty, facts, h, heading, loading, panel, problem } from "./dom.js";
import { bytes, count } from "./format.js";
import { showPartitions } from "./partitions_page.js";
import { link } from "./router.js";
import { quoteName, readColumns, shellName } from "./schema.js";
import { showRows } from "./rows_page.js";
import { showFiles, showFollowers, showHistory } from "./table_pages.js";

const PAGES = [
    ["columns", "Columns", showColumns],
    ["rows", "Rows", showRows],
    ["partitions", "Partitions", showPartitions],
    ["files", "Files", showFiles],
    ["history", "History", showHistory],
    ["followers", "Followers", showFollowers],
];

export async function showTable({ parts, query, signal, redraw }) {
    const [, name, page = "columns"] = parts;
    const table = await getJson(["tables", name], {}, signal);
    const [, , show] = PAGES.find(([id]) => id === page) ?? PAGES[0];
    const tabs = PAGES.map(([id, title]) =>
        h("a", { href: link(["tables", name, id]), "aria-current": id === page ? "page" : null }, title),
    );
    const place = h("div", { class: "page" }, loading());
    // The page appears at once; its content follows.
    show({ table, query, signal, redraw })
        .then((content) => signal.aborted || place.replaceChildren(...[content].flat()))
        .catch((error) => signal.aborted || place.replaceChildren(problem(error, redraw)));
    return [
        heading(name, null, h("a", { class: "button primary", href: queryLink(table) }, "Query")),
        facts([
            ["Rows", table.rows === undefined ? null : count(table.rows)],
            ["Size", table.bytes === undefined ? null : bytes(table.bytes)],
            ["Files", table.files === undefined ? null : count(table.files)],
            ["Leaf partitions", table.leaves === undefined ? null : count(table.leaves)],
            ["Version", count(table.version)],
            ["State", table.online ? null : "offline"],
        ]),
        h("nav", { class: "tabs", "aria-label": `Pages of table ${name}` }, ...tabs),
        place,
    ];
}

function queryLink(table) {
    return link(["query"], { sql: `SELECT *\nFROM ${quoteName(table.name)}\nLIMIT 100` });
}

async function showColumns({ table }) {
    const columns = [
        { name: "name", title: "Column", kind: "code" },
        { name: "text", title: "Type", kind: "code" },
        {
            name: "role",
            title: "Role",
            value: ({ role }) => h("span", { class: role === "value" ? "dim" : "tag" }, role),
        },
        { name: "nullable", title: "Nullable", value: ({ nullable }) => (nullable ? "yes" : "no") },
    ];
    const content = [dataTable(`Columns of ${table.name}`, columns, readColumns(table.schema))];
    const properties = Object.entries(table.properties ?? {}).map(([name, value]) => ({ name, value }));
    if (properties.length) {
        const shown = [
            { name: "name", title: "Property", kind: "code" },
            { name: "value", title: "Value", kind: "code" },
        ];
        content.push(panel("Processing of rows that are read", dataTable("Properties", shown, properties)));
    }
    if (table.rows === 0) {
        content.push(
            empty("This table has no rows yet", command(`sleeper ingest ${shellName(table.name)} rows.csv`)),
        );
    }
    return content;
}
