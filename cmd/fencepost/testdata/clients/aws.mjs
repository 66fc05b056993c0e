import { CreateScheduleCommand, SchedulerClient } from '@aws-sdk/client-scheduler';
import main from './sdk.mjs';

const input = (order) => ({
  Name: 'payout',
  ScheduleExpression: 'rate(1 day)',
  FlexibleTimeWindow: { Mode: 'OFF' },
  Target: { Arn: 'arn:aws:sqs:eu-central-1:123456789012:q', RoleArn: 'arn:aws:iam::123456789012:role/r', Input: JSON.stringify(order) },
});

const credentials = { accessKeyId: 'AKIDEXAMPLE', secretAccessKey: 'secret' };

async function create(client, order) {
  return (await client.send(new CreateScheduleCommand(input(order)))).ScheduleArn;
}

// keyless: the token that the SDK puts into the body is what makes two calls two.
async function keyless({ url, timeout, retries, order }) {
  const region = 'eu-central-1';
  // docs/clients.md shows this
  const client = new SchedulerClient({
    region,
    credentials,
    endpoint: url,
    maxAttempts: 1 + retries,
    requestHandler: { requestTimeout: timeout, throwOnRequestTimeout: true },
  });
  // up to here
  return create(client, order);
}

// signed signs for the upstream's host and connects to url.
async function signed({ url, upstream, timeout, retries, order }) {
  const client = new SchedulerClient({ region: 'eu-central-1', credentials, endpoint: upstream, maxAttempts: 1 + retries, requestHandler: { requestTimeout: timeout, throwOnRequestTimeout: true } });
  const fencepost = new URL(url);
  // docs/clients.md shows this
  client.middlewareStack.addRelativeTo(
    (next) => (args) => {
      const { protocol, hostname, port } = fencepost;
      Object.assign(args.request, { protocol, hostname, port: Number(port) });
      return next(args);
    },
    { relation: 'after', toMiddleware: 'httpSigningMiddleware', name: 'toFencepost' },
  );
  // up to here
  return create(client, order);
}

main({ keyless, invocation: keyless, signed }, (e) => ({ status: e.$metadata?.httpStatusCode, code: e.$response ? e.name : e.code }));
