import java.nio.file.Path;
import org.neo4j.configuration.GraphDatabaseSettings;
import org.neo4j.configuration.connectors.BoltConnector;
import org.neo4j.configuration.connectors.ConnectorPortRegister;
import org.neo4j.configuration.connectors.ConnectorType;
import org.neo4j.configuration.helpers.SocketAddress;
import org.neo4j.dbms.api.DatabaseManagementServiceBuilder;
import org.neo4j.kernel.internal.GraphDatabaseAPI;

/** A kernel with Bolt on loopback, over the directory and at the port given (0: a free one), until standard input ends. */
public final class Neo4jKernel {
    public static void main(String[] arguments) throws Exception {
        var listen = new SocketAddress("127.0.0.1", Integer.parseInt(arguments[1]));
        var kernel = new DatabaseManagementServiceBuilder(Path.of(arguments[0]))
                .setConfig(BoltConnector.enabled, true)
                .setConfig(BoltConnector.listen_address, listen)
                .setConfig(GraphDatabaseSettings.pagecache_memory, 256L << 20)
                .setConfig(GraphDatabaseSettings.udc_enabled, false)
                .build();
        var database = (GraphDatabaseAPI) kernel.database("neo4j");
        var ports = database.getDependencyResolver().resolveDependency(ConnectorPortRegister.class);
        System.out.println("ready " + ports.getLocalAddress(ConnectorType.BOLT).getPort());
        while (System.in.read() >= 0) { }
        kernel.shutdown();
    }
}
