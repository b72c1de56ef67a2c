// sampling.js - the controls of an answer, each with what it means.
import {el} from './dom.js';

export const CONTROLS = [
    {
        name: 'temperature',
        label: 'Temperature',
        min: 0,
        max: 2,
        step: 0.05,
        fallback: 0.7,
        help: '0 always takes the likeliest token. Higher values vary more, and err more.'
    },
    {
        name: 'top_p',
        label: 'Top p',
        min: 0,
        max: 1,
        step: 0.01,
        fallback: 0.95,
        help: 'Only the fewest likeliest tokens whose probabilities add up to this share ' +
            'can be chosen. 1: all.'
    },
    {
        name: 'top_k',
        label: 'Top k',
        min: 0,
        max: 200,
        step: 1,
        fallback: 0,
        help: 'Only this many of the likeliest tokens can be chosen. 0: no limit.'
    },
    {
        name: 'min_p',
        label: 'Min p',
        min: 0,
        max: 1,
        step: 0.01,
        fallback: 0,
        help: 'Drops tokens that are less likely than this share of the likeliest one. 0: off.'
    },
    {
        name: 'repetition_penalty',
        label: 'Repetition penalty',
        min: 0.5,
        max: 2,
        step: 0.05,
        fallback: 1,
        help: 'Above 1, tokens that were just written become less likely. 1: off.'
    },
    {
        name: 'max_tokens',
        label: 'Longest answer',
        min: 1,
        max: 131072,
        step: 1,
        fallback: 1024,
        help: 'The answer ends after this many tokens at the latest.'
    },
    {
        name: 'seed',
        label: 'Seed',
        min: -1,
        max: 2147483647,
        step: 1,
        fallback: -1,
        help: 'The same seed and the same conversation give the same answer. ' +
            '-1: another one each time.'
    },
];

export const samplingOf = (chat) => Object.fromEntries(CONTROLS.map(
    (c) =>
        [c.name, typeof chat.sampling[c.name] === 'number' ? chat.sampling[c.name] : c.fallback]));

/** Fields for all controls; `onChange(name, value)`. */
export function samplingFields(values, onChange) {
    return CONTROLS.map((c) => {
        const id = `control-${c.name}`;
        const input = el('input', {
            id,
            type: 'number',
            min: String(c.min),
            max: String(c.max),
            step: String(c.step),
            value: String(values[c.name]),
            'aria-describedby': `${id}-help`,
            onchange: () => {
                const value = Number(input.value);
                const isGood = input.value !== '' && value >= c.min && value <= c.max;
                input.setAttribute('aria-invalid', String(!isGood));
                if (isGood) onChange(c.name, value);
            },
        });
        return el(
            'div', {class: 'field'}, el('label', {'for': id}, c.label), input,
            el('p', {class: 'help', id: `${id}-help`}, c.help));
    });
}
