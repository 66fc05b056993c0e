const http = require('node:http');
const agent = new http.Agent({ keepAlive: true });

require('./retry.cjs')((call) => new Promise((resolve, reject) => {
  const headers = call.method === 'GET' ? call.headers : { ...call.headers, 'Content-Length': call.body.length };
  const req = http.request(call.url, { method: call.method, headers, agent }, (res) => {
    const parts = [];
    res.on('data', (d) => parts.push(d));
    res.on('error', reject);
    res.on('end', () => resolve({ status: res.statusCode, headers: res.headers, body: Buffer.concat(parts).toString('base64') }));
  });
  if (call.timeout) req.setTimeout(call.timeout * 1000, () => req.destroy(new Error('timeout')));
  req.on('error', reject);
  req.end(call.body);
}));
