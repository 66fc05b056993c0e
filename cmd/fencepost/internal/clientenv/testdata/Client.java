import java.net.HttpURLConnection;
import java.net.URI;

/** Reads a URL and prints what it says. */
public class Client {
    public static void main(String[] args) throws Exception {
        var connection = (HttpURLConnection) URI.create(args[0]).toURL().openConnection();
        System.out.print(new String(connection.getInputStream().readAllBytes()));
    }
}
