import OpenAI from 'openai';
import main from './sdk.mjs';

function client(url, timeout, retries) {
  // docs/clients.md shows this
  const openai = new OpenAI({ baseURL: url, apiKey: 'sk-test', maxRetries: retries, timeout });
  // up to here
  return openai;
}

const params = (order) => ({ model: 'gpt-test', messages: [{ role: 'user', content: order.note }] });

async function keyed({ url, timeout, retries, key, order }) {
  const openai = client(url, timeout, retries);
  const request = params(order);
  // docs/clients.md shows this
  const completion = await openai.chat.completions.create(request, { headers: { 'Idempotency-Key': key } });
  // up to here
  return completion.id;
}

// own: the SDK can make keys, but its name for the field is empty.
async function own({ url, timeout, retries, order }) {
  const openai = client(url, timeout, retries);
  // docs/clients.md shows this
  openai.idempotencyHeader = 'Idempotency-Key'; // the SDK makes a key for each call and keeps it on its retries
  // up to here
  return (await openai.chat.completions.create(params(order))).id;
}

// option is the request option of that name, which alone sends nothing.
async function option({ url, timeout, retries, key, order }) {
  return (await client(url, timeout, retries).chat.completions.create(params(order), { idempotencyKey: key })).id;
}

const keyless = async ({ url, timeout, retries, order }) => (await client(url, timeout, retries).chat.completions.create(params(order))).id;

main({ keyed, own, option, keyless }, (e) => ({ status: e.status, code: e.code }));
