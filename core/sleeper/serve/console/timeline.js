/** A time line of jobs: a row for each kind, a bar for each job from its start to its end. */

import { stateKind, stateMark } from "./data_table.js";
import { svg } from "./dom.js";
import { duration, time } from "./format.js";

const LANES_MAX = 8;
const LANE = 16;
const GAP = 14;
const TOP = 28;
const RIGHT = 4;
const LABEL_WIDTH = 128;
const BAR_WIDTH_MIN = 4;
const MARK_WIDTH = 16;
const STEPS_SECONDS = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 604800];

/** Returns the picture of jobs with `kind`, `id`, `table`, `state`, `startMs`, `endMs`, of a width. */
export function drawTimeline(jobs, width, nowMs) {
    const isNarrow = width < 560;
    const left = isNarrow ? 8 : LABEL_WIDTH;
    const startMs = Math.min(...jobs.map((each) => each.startMs));
    const endMs = Math.max(...jobs.map((each) => each.endMs ?? nowMs), startMs + 1000);
    // The last bar may have no length, and needs its least width.
    const room = width - left - RIGHT - BAR_WIDTH_MIN;
    const scale = (ms) => left + (room * (ms - startMs)) / (endMs - startMs);
    const rows = [];
    let y = TOP;
    for (const [kind, some] of groupByKind(jobs)) {
        const lanes = assignLanes(some, scale, nowMs);
        if (isNarrow) y += 18;
        const height = Math.max(1, Math.min(LANES_MAX, Math.max(...lanes) + 1)) * LANE;
        const label = svg(
            "text",
            {
                class: "row-label",
                x: isNarrow ? left : left - 12,
                y: isNarrow ? y - 9 : y + 12,
                "text-anchor": isNarrow ? "start" : "end",
            },
            kind,
        );
        const bars = some.map((job, index) =>
            drawBar(job, scale, y + (lanes[index] % LANES_MAX) * LANE, nowMs),
        );
        rows.push(
            svg("rect", {
                class: "row-back",
                x: left,
                y: y - 4,
                width: width - left - RIGHT,
                height: height + 6,
                rx: 4,
            }),
            label,
            ...bars,
        );
        y += height + GAP;
    }
    const marks = ticks(startMs, endMs, Math.max(2, Math.floor((width - left) / 110)));
    const grid = marks.flatMap(({ ms, text }) => [
        svg("line", { class: "grid", x1: scale(ms), x2: scale(ms), y1: TOP - 6, y2: y - GAP + 4 }),
        svg(
            "text",
            { class: "tick", x: Math.min(scale(ms), width - 22), y: 14, "text-anchor": "middle" },
            text,
        ),
    ]);
    const label = `Time line of ${jobs.length} jobs from ${time(startMs)} to ${time(endMs)}. The list below has the same jobs.`;
    return svg(
        "svg",
        {
            viewBox: `0 0 ${width} ${y}`,
            width,
            height: y,
            role: "img",
            "aria-label": label,
            class: "timeline",
        },
        ...grid,
        ...rows,
    );
}

function groupByKind(jobs) {
    const groups = new Map();
    for (const each of jobs) groups.set(each.kind, [...(groups.get(each.kind) ?? []), each]);
    return [...groups].map(([kind, some]) => [kind, some.sort((a, b) => a.startMs - b.startMs)]);
}

/** Returns the lane of each job, so that no two that run at once overlap. */
function assignLanes(jobs, scale, nowMs) {
    const ends = [];
    return jobs.map((job) => {
        const free = ends.findIndex((end) => end <= scale(job.startMs));
        const lane = free < 0 ? ends.length : free;
        ends[lane] = Math.max(scale(job.endMs ?? nowMs), scale(job.startMs) + MARK_WIDTH) + 2;
        return lane;
    });
}

/** Draws a bar. A mark at its start shows the state without colour; a failed bar has a cut end. */
function drawBar(job, scale, y, nowMs) {
    const width = Math.max(BAR_WIDTH_MIN, scale(job.endMs ?? nowMs) - scale(job.startMs));
    const x = scale(job.startMs);
    const kind = stateKind(job.state);
    const end = job.endMs === null ? "still running" : duration((job.endMs - job.startMs) / 1000);
    const text = `${job.kind} ${job.id}\n${job.table}: ${job.state}\n${time(job.startMs)}, ${end}${job.reason ? `\n${job.reason}` : ""}`;
    const radius = kind === "bad" ? 0 : 3;
    const bar = svg(
        "g",
        { class: `job ${kind}` },
        svg("title", {}, text),
        svg("rect", { x, y, width, height: LANE - 4, rx: radius }),
    );
    if (kind !== "good" || width >= MARK_WIDTH) {
        const isInside = width >= MARK_WIDTH;
        bar.append(
            svg(
                "text",
                { class: isInside ? "inside" : "outside", x: isInside ? x + 3 : x + width + 2, y: y + 10 },
                stateMark(job.state),
            ),
        );
    }
    return bar;
}

function ticks(startMs, endMs, number) {
    const span = (endMs - startMs) / 1000;
    const step =
        1000 *
        (STEPS_SECONDS.find((each) => span / each <= number) ?? Math.ceil(span / number / 604800) * 604800);
    const zone = new Date(startMs).getTimezoneOffset() * 60_000;
    const first = Math.ceil((startMs - zone) / step) * step + zone;
    const found = [];
    for (let ms = first; ms <= endMs; ms += step) found.push({ ms, text: tickText(ms, step) });
    return found;
}

function tickText(ms, step) {
    const text = time(ms);
    if (step >= 86_400_000) return text.slice(5, 10);
    return step >= 60_000 ? text.slice(11, 16) : text.slice(11);
}
