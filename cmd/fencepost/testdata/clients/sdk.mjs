// Makes the calls given on stdin at once, each by one of ways, and prints how it
// ended: with the charge's id, or with an error as a caller reads it.
import fs from 'node:fs';
import { text } from 'node:stream/consumers';

export default async function main(ways, problem) {
  const { calls } = JSON.parse(await text(process.stdin));
  const end = async (call) => {
    try {
      return { id: await ways[call.way](call) };
    } catch (e) {
      const got = await Promise.resolve(e).then(problem).catch((other) => ({ code: `unreadable: ${other}` }));
      return { error: { class: e.constructor.name, status: got.status ?? 0, code: String(got.code ?? ''), message: String(e.message) } };
    }
  };
  fs.writeFileSync(1, JSON.stringify(await Promise.all(calls.map(end))));
  process.exit(0);
}
