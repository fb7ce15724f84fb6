// `openai` for Node: OpenAIRealtimeWS, which speaks TLS only; NODE_EXTRA_CA_CERTS names the certificate it trusts.
import fs from "node:fs";
import OpenAI from "openai";
import { OpenAIRealtimeWS } from "openai/realtime/ws";

const [url, path, rate] = process.argv.slice(2);
const WAV_HEADER_BYTES = 44;
const PIECE_BYTES = 4800;
const audio = fs.readFileSync(path).subarray(WAV_HEADER_BYTES);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "unused" });
const realtime = new OpenAIRealtimeWS({ model: "gpt-4o-transcribe" }, client);
const deltas = [];

realtime.on("error", (error) => {
  throw error;
});
realtime.on("session.created", () => {
  realtime.send({
    type: "session.update",
    session: {
      type: "transcription",
      audio: {
        input: {
          format: { type: "audio/pcm", rate: Number(rate) },
          transcription: { model: "gpt-4o-transcribe", language: "en" },
          turn_detection: null,
        },
      },
    },
  });
  for (let start = 0; start < audio.length; start += PIECE_BYTES) {
    const piece = audio.subarray(start, start + PIECE_BYTES).toString("base64");
    realtime.send({ type: "input_audio_buffer.append", audio: piece });
  }
  realtime.send({ type: "input_audio_buffer.commit" });
});
realtime.on("conversation.item.input_audio_transcription.delta", (event) => deltas.push(event.delta));
realtime.on("conversation.item.input_audio_transcription.completed", (event) => {
  console.log(JSON.stringify({ transcripts: [event.transcript], deltas }));
  realtime.close();
});
