// The loop that callers write round a client without retries of its own.
const fs = require('node:fs');

const passing = (status) => status === 409 || status === 429 || status >= 500;

async function attempt(one, call) {
  for (let n = 0; ; n++) {
    let got;
    try {
      got = await one(call);
    } catch (e) {
      got = { status: 0, headers: {}, body: '', error: String(e.cause || e) };
    }
    if (n >= call.retries || !(got.error || passing(got.status))) return got;
    await new Promise((r) => setTimeout(r, 1000 * Number(got.headers['retry-after'] || 0.3)));
  }
}

// main makes the calls given on stdin, one after the other, and prints their ends.
module.exports = async function main(one) {
  const ends = [];
  for (const call of JSON.parse(fs.readFileSync(0))) {
    call.body = Buffer.from(call.body || '', 'base64');
    ends.push(await attempt(one, call));
  }
  fs.writeFileSync(1, JSON.stringify(ends));
  process.exit(0);
};
