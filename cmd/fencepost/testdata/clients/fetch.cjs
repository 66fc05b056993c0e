require('./retry.cjs')(async (call) => {
  const res = await fetch(call.url, {
    method: call.method,
    headers: call.headers,
    body: call.method === 'GET' ? undefined : call.body,
    redirect: 'manual',
    signal: call.timeout ? AbortSignal.timeout(call.timeout * 1000) : undefined,
  });
  const body = Buffer.from(await res.arrayBuffer());
  return { status: res.status, headers: Object.fromEntries(res.headers), body: body.toString('base64') };
});
