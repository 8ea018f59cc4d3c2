// AI SDK with @ai-sdk/openai-compatible: `generateText` and `streamText` run the loop and execute the tool.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, stepCountIs, streamText, tool } from "ai";
import { Booking, DESCRIPTION, Light, MODEL, heard, play, setLight } from "./play.mjs";

const model = createOpenAICompatible({
  name: "router",
  baseURL: process.env.OPENAI_BASE_URL,
  apiKey: process.env.OPENAI_API_KEY,
  supportsStructuredOutputs: true,
})(MODEL);
const tools = { set_light: tool({ description: DESCRIPTION, inputSchema: Light, execute: setLight }) };
const limits = { maxRetries: 0, stopWhen: stepCountIs(3) };

async function loop(prompt) {
  return { words: (await generateText({ model, tools, prompt, ...limits })).text };
}

async function stream(prompt) {
  const answer = streamText({ model, tools, prompt, ...limits });
  const pieces = [];
  for await (const piece of answer.textStream) pieces.push(piece);
  return heard(pieces);
}

async function fill(prompt) {
  const output = Output.object({ schema: Booking, name: "Booking" });
  return { object: (await generateText({ model, prompt, output, maxRetries: 0 })).output };
}

await play({ loop, stream, fill });
