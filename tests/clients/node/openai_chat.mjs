// openai: `runTools` runs the loop and executes the tool, streamed or not; `parse` fills the object.
import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { Booking, DESCRIPTION, Light, MODEL, heard, play, setLight } from "./play.mjs";

const chat = new OpenAI({ maxRetries: 0 }).chat.completions;
const tools = [zodFunction({ name: "set_light", description: DESCRIPTION, parameters: Light, function: setLight })];
const user = (content) => [{ role: "user", content }];

async function loop(text) {
  return { words: await chat.runTools({ model: MODEL, messages: user(text), tools }).finalContent() };
}

async function stream(text) {
  const runner = chat.runTools({ model: MODEL, messages: user(text), tools, stream: true });
  const pieces = [];
  runner.on("content", (piece) => pieces.push(piece));
  await runner.done();
  return heard(pieces);
}

async function fill(text) {
  const answer = await chat.parse({
    model: MODEL,
    messages: user(text),
    response_format: zodResponseFormat(Booking, "Booking"),
  });
  return { object: answer.choices[0].message.parsed };
}

await play({ loop, stream, fill });
