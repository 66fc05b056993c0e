// The requests of the arguments, with one of Node's clients. See run_clients_test.go.

function byHTTPS(method, url, headers, body) {
  return new Promise((resolve, reject) => {
    const req = require(new URL(url).protocol === 'http:' ? 'node:http' : 'node:https').request(url, { method, headers }, (res) => {
      let text = '';
      res.on('data', (d) => (text += d)).on('error', reject);
      res.on('end', () => resolve([res.statusCode, res.headers, text]));
    });
    req.on('error', reject);
    req.end(body);
  });
}

async function byFetch(method, url, headers, body) {
  const res = await fetch(url, { method, headers, body });
  return [res.status, Object.fromEntries(res.headers), await res.text()];
}

async function byAxios(method, url, headers, body) {
  const res = await require('axios').request({ method, url, headers, data: body, validateStatus: null, responseType: 'text' });
  return [res.status, res.headers, typeof res.data === 'string' ? res.data : JSON.stringify(res.data)];
}

let dispatcher;
let protocol = '-';

async function byUndici(method, url, headers, body, allowH2 = false) {
  const undici = require('undici');
  if (!dispatcher) {
    dispatcher = new undici.EnvHttpProxyAgent({ allowH2, requestTls: { allowH2 } });
    // Of the connections that are made, the last one is the one to the host.
    require('node:diagnostics_channel').subscribe('undici:client:connected', ({ socket }) => {
      protocol = socket.alpnProtocol === 'h2' ? '2' : '1.1';
    });
  }
  const res = await undici.request(url, { dispatcher, method, headers, body });
  return [res.statusCode, res.headers, await res.body.text()];
}

const byUndiciH2 = (...call) => byUndici(...call, true);

(async () => {
  const [way, ...plan] = process.argv.slice(2);
  const send = { https: byHTTPS, fetch: byFetch, axios: byAxios, undici: byUndici, 'undici-h2': byUndiciH2 }[way];
  for (let i = 0; i < plan.length; i += 3) {
    const [method, url, key] = plan.slice(i);
    const keyed = method === 'POST';
    const [status, headers, text] = await send(method, url, keyed ? { 'Idempotency-Key': key } : {}, keyed ? 'amount=1' : undefined);
    console.log([status, protocol, headers['idempotent-replayed'] ?? '-', text.replace(/\s+/g, ' ')].join('\t'));
  }
  process.exit(0);
})().catch((e) => {
  console.error(e);
  process.exit(1);
});
