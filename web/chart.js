// chart.js - small line charts over time.
import {cssColour, el, numberText} from './dom.js';
import {fitCanvas} from './picture.js';

const CHART_PX = 130;
const LEFT_PX = 46;
const LINE_COLOURS = ['line-a', 'line-b', 'line-c'];

/** A round number at or above `value`: 1, 2 or 5 times a power of ten. */
function roundUp(value) {
    const power = 10 ** Math.floor(Math.log10(value));
    return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= value);
}

/** A figure with title, newest values and lines; update(times, lists). */
export function chartElement(title, names, unit) {
    const canvas = el('canvas', {role: 'img', 'aria-label': `${title} over time`});
    const values = names.map(() => el('b', {}, '–'));
    const legend =
        el('p', {class: 'chart-values'},
           names.map(
               (name, i) =>
                   el('span', {}, el('span', {class: `swatch ${LINE_COLOURS[i]}`}), `${name} `,
                      values[i])));
    const figure =
        el('figure', {class: 'chart'},
           el('figcaption', {}, title, unit ? el('span', {class: 'count'}, ` ${unit}`) : null),
           legend, canvas);
    figure.update = (times, lists, format = numberText) => {
        lists.forEach((list, i) => {
            const newest = list.findLast((v) => Number.isFinite(v)) ?? NaN;
            values[i].textContent = format(newest);
            values[i].dataset.value = newest;
        });
        drawChart(canvas, figure.clientWidth - 26, times, lists);
    };
    return figure;
}

function drawChart(canvas, width, times, lists) {
    const context = fitCanvas(canvas, width, CHART_PX);
    context.fillStyle = cssColour('surface');
    context.fillRect(0, 0, width, CHART_PX);
    const largest = Math.max(0, ...lists.flat().filter(Number.isFinite));
    const top = largest > 0 ? roundUp(largest) : 1;
    const bottom = CHART_PX - 18;
    const span = Math.max(60000, times.at(-1) - times[0]);
    const xOf = (time) => width - 2 - (times.at(-1) - time) / span * (width - LEFT_PX - 2);
    const yOf = (value) => bottom - value / top * (bottom - 8);
    context.font = '11px system-ui, sans-serif';
    context.textBaseline = 'middle';
    for (const share of [0, 0.5, 1]) {
        context.fillStyle = cssColour('line');
        context.fillRect(LEFT_PX, yOf(top * share), width - LEFT_PX, 1);
        context.fillStyle = cssColour('soft');
        context.fillText(numberText(top * share), 2, yOf(top * share) + (share === 1 ? 4 : 0));
    }
    context.fillText(
        span >= 120000 ? `${Math.round(span / 60000)} min ago` : `${Math.round(span / 1000)} s ago`,
        LEFT_PX, CHART_PX - 7);
    context.textAlign = 'right';
    context.fillText('now', width - 2, CHART_PX - 7);
    context.textAlign = 'left';
    lists.forEach(
        (list, i) => drawSeries(context, times, list, cssColour(LINE_COLOURS[i]), xOf, yOf));
}

function drawSeries(context, times, list, colour, xOf, yOf) {
    context.strokeStyle = colour;
    context.fillStyle = colour;
    context.lineWidth = 1.75;
    context.beginPath();
    let isDown = false;
    list.forEach((value, i) => {
        if (!Number.isFinite(value)) {
            isDown = false;
            return;
        }
        if (isDown)
            context.lineTo(xOf(times[i]), yOf(value));
        else
            context.moveTo(xOf(times[i]), yOf(value));
        const isAlone = !isDown && !Number.isFinite(list[i + 1]);
        if (isAlone) context.rect(xOf(times[i]) - 1, yOf(value) - 1, 2, 2);
        isDown = true;
    });
    context.stroke();
}
