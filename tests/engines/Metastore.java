import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;

/** Hive's metastore on the port in its argument. It makes the tables of locks first, which Hive's scripts do elsewhere. */
public class Metastore {
    public static void main(String[] arguments) throws Throwable {
        TxnDbUtil.prepDb(MetastoreConf.newMetastoreConf());
        HiveMetaStore.main(new String[] {"-p", arguments[0]});
    }
}
