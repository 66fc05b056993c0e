// Makes the calls given on stdin with the Stripe SDK and prints how each ended.
const fs = require('node:fs');
const Stripe = require('stripe');

const { host, port, retries, timeout, atOnce, calls } = JSON.parse(fs.readFileSync(0));
const stripe = new Stripe('sk_test_123', { host, port, protocol: 'http', maxNetworkRetries: retries, timeout, telemetry: false });

async function end({ resource, method, args }) {
  try {
    const value = await stripe[resource][method](...args);
    return { value, status: value.lastResponse.statusCode, headers: value.lastResponse.headers };
  } catch (e) {
    return { error: { type: e.type, code: e.code, statusCode: e.statusCode, message: e.message }, headers: e.headers || {} };
  }
}

async function main() {
  const ends = [];
  for (const call of calls) ends.push(atOnce ? end(call) : await end(call));
  fs.writeFileSync(1, JSON.stringify(await Promise.all(ends)));
  process.exit(0);
}
main();
