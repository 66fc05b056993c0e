import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** The requests of the arguments, with one of Java's clients. See run_clients_test.go. */
public class Client {
    public static void main(String[] args) throws Exception {
        HttpClient client = args[0].equals("HttpClient") ? HttpClient.newHttpClient() : null;
        for (int i = 1; i < args.length; i += 3) {
            if (client != null) {
                byHttpClient(client, args[i], args[i + 1], args[i + 2]);
            } else {
                byURLConnection(args[i], args[i + 1], args[i + 2]);
            }
        }
    }

    static void byURLConnection(String method, String url, String key) throws Exception {
        var c = (HttpURLConnection) URI.create(url).toURL().openConnection();
        c.setRequestMethod(method);
        if (method.equals("POST")) {
            c.setRequestProperty("Idempotency-Key", key);
            c.setDoOutput(true);
            c.getOutputStream().write("amount=1".getBytes());
        }
        int status = c.getResponseCode();
        InputStream in = status >= 400 ? c.getErrorStream() : c.getInputStream();
        print(status, "-", c.getHeaderField("Idempotent-Replayed"), new String(in.readAllBytes()));
    }

    static void byHttpClient(HttpClient client, String method, String url, String key) throws Exception {
        var r = HttpRequest.newBuilder(URI.create(url));
        if (method.equals("POST")) {
            r.header("Idempotency-Key", key).POST(HttpRequest.BodyPublishers.ofString("amount=1"));
        }
        var answer = client.send(r.build(), HttpResponse.BodyHandlers.ofString());
        print(answer.statusCode(), answer.version() == HttpClient.Version.HTTP_2 ? "2" : "1.1", answer.headers().firstValue("Idempotent-Replayed").orElse(null), answer.body());
    }

    static void print(int status, String protocol, String replayed, String body) {
        System.out.println(status + "\t" + protocol + "\t" + (replayed == null ? "-" : replayed) + "\t" + body.strip().replaceAll("\\s+", " "));
    }
}
