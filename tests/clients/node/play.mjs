// What every Node client is asked to play: a tool, an object to fill in, and a report of what it got.
//
//     node CLIENT.mjs SCENE "what the user says"
//
// The contract is that of ../python/play.py.
import { z } from "zod";

export const MODEL = "big";
export const DESCRIPTION = "Switch the light of a room";
export const Light = z.object({ room: z.string(), on: z.boolean() });
export const Booking = z.object({ city: z.string(), guests: z.number().int() });

const switched = [];

export function setLight({ room, on }) {
  switched.push({ room, on });
  return `${room}: ${on ? "on" : "off"}`;
}

// The report of words that came as a stream; empty pieces do not count.
export function heard(pieces) {
  const spoken = pieces.filter(Boolean);
  return { words: spoken.join(""), pieces: spoken.length };
}

export async function play(scenes) {
  const [scene, text] = process.argv.slice(2);
  const report = await scenes[scene](text);
  console.log(JSON.stringify({ ...report, switched }));
}
