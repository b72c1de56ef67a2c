// story.js - what happened to a sequence, in sentences.
import {countText, msText, numberText, plural} from './dom.js';

export const REASONS = {
    seat: 'all seats were taken',
    blocks: 'there were not enough free KV blocks',
    policy: 'the policy held it back',
    prefix: 'another sequence was computing the same prefix',
    budget: 'the steps had no tokens left for it',
    swapped: 'its KV blocks were in the spill store',
};

const ENDS = {
    stop: 'The model ended the answer.',
    length: 'It ended at its limit of tokens.',
    cancelled: 'The client cancelled it.',
    expired: 'Its deadline passed, or the policy ended it.',
    refused: 'It can never be served: it needs more than the server has.',
    error: 'Its computation failed; the log of the server says why.',
};

const spanText = (us) => msText(us / 1000);

export const sequenceName = (s) =>
    s.choice ? `request ${s.request}, choice ${s.choice + 1}` : `request ${s.request}`;

function waitSentence(waits, total) {
    const reasons = new Map();
    for (const wait of waits) reasons.set(wait.why, (reasons.get(wait.why) || 0) + wait.us);
    const parts = [...reasons].sort((a, b) => b[1] - a[1]).map(([why]) => REASONS[why] || why);
    if (!parts.length) return `It waited ${spanText(total)} for the step under way to end.`;
    return `It waited ${spanText(total)} because ${parts.join(', and because ')}.`;
}

function admissionSentence(admission, isFirst) {
    const cached = admission.cached ?
        ` ${plural(admission.cached, 'token')} of its prompt ${
            admission.cached === 1 ? 'was' : 'were'} in the prefix cache.` :
        '';
    return `${isFirst ? 'It took' : 'It returned to'} seat ${admission.seat}.${cached}`;
}

function preemptionSentence(preemption) {
    const forWhom = preemption.forRequest ?
        ` for ${
            sequenceName({request: preemption.forRequest, choice: preemption.forChoice || 0})}` :
        '';
    const why = {
        memory: 'KV memory ran out',
        failed: 'its KV blocks could not be moved'
    }[preemption.why] ||
        'the policy preferred another';
    const how = preemption.how === 'swap' ?
        'Its KV blocks were moved to the spill store.' :
        'Its KV blocks were freed; they are computed again when it returns.';
    return `It was preempted${forWhom}, because ${why}. ${how}`;
}

function beginning(sequence, nameOf) {
    const name = nameOf(sequence);
    const title = name.charAt(0).toUpperCase() + name.slice(1);
    if (sequence.arrived === null)
        return [null, `${title} had arrived before the first step that is kept.`];
    return [
        sequence.arrived,
        `${title} arrived with a prompt of ${plural(sequence.prompt, 'token')}` +
            (sequence.max ? ` and may write ${plural(sequence.max, 'token')}.` : '.')
    ];
}

function firstTokenSentence(sequence) {
    const steps = `Its prompt was computed in ${plural(sequence.prefillSteps, 'step')}`;
    if (sequence.arrived === null) return `${steps}; the first token came.`;
    return `${steps}; the first token came ${
        spanText(sequence.firstToken - sequence.arrived)} after its arrival.`;
}

function endSentences(sequence) {
    const list = [];
    const {generated, at, why} = sequence.ended;
    if (generated > 1 && sequence.firstToken !== null && at > sequence.firstToken) {
        const us = at - sequence.firstToken;
        list.push(
            `It wrote ${plural(generated, 'token')} in ${spanText(us)} after the first one, ` +
            `${numberText((generated - 1) / (us / 1e6))} tokens/s.`);
    } else {
        list.push(`It wrote ${plural(generated, 'token')}.`);
    }
    list.push(ENDS[why] || `It ended: ${why}.`);
    return list;
}

/** [[time in us or null, sentence], ...] in order. */
export function storyOf(sequence, nameOf = sequenceName) {
    const list = [beginning(sequence, nameOf)];
    const parts =
        Math.max(sequence.preemptions.length, ...sequence.admissions.map((a) => a.part), 0);
    for (let part = 0; part <= parts; part++) {
        const admission = sequence.admissions.find((a) => a.part === part);
        const waits = sequence.waits.filter((w) => w.part === part);
        const spent = waits.reduce((sum, w) => sum + w.us, 0);
        const since = part ? sequence.preemptions[part - 1].at : sequence.arrived;
        const waited = !admission ? spent :
            since === null        ? admission.waited :
                                    admission.at - since;
        if (waited > 0 && (waits.length || waited >= 1000))
            list.push([null, waitSentence(waits, waited)]);
        if (admission) list.push([admission.at, admissionSentence(admission, part === 0)]);
        const until = sequence.preemptions[part];
        const isFirstPart = sequence.firstToken !== null &&
            (!until || sequence.firstToken <= until.at) &&
            (part === 0 || sequence.firstToken > sequence.preemptions[part - 1].at);
        if (isFirstPart) list.push([sequence.firstToken, firstTokenSentence(sequence)]);
        if (!until) continue;
        list.push([until.at, preemptionSentence(until)]);
        const isTold = sequence.admissions.some((a) => a.part === part + 1);
        if (until.returned !== null && !isTold)
            list.push(
                [until.returned, `It ran again after ${spanText(until.returned - until.at)}.`]);
    }
    if (sequence.ended)
        for (const sentence of endSentences(sequence)) list.push([sequence.ended.at, sentence]);
    else
        list.push([null, stateSentence(sequence)]);
    return list;
}

function stateSentence(sequence) {
    if (!sequence.segments.length) return 'It is waiting.';
    const last = sequence.preemptions.at(-1);
    if (last && last.returned === null) return 'It is waiting to return.';
    return `It is running and has written ${countText(sequence.sampled)} tokens.`;
}
