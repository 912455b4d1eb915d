package etcd

import (
	"strconv"

	"github.com/holdfast-go/holdfast/driver/lockrecord"
)

// tokenSuffix ends the keys of [TokenKey]. No key of package cas has a "/" or begins with a dot, so no lock has such a key, also under a
// longer prefix.
const tokenSuffix = "/.token"

// TokenKey is the key whose value is the fencing token of the last grant of a lock, in decimal digits. The transaction of the grant writes
// it, and no renewal and no release does. prefix is that of [WithPrefix], or empty for the default.
//
// A program that writes into the same cluster adds a condition to its transaction. So a write of a holder that has not noticed the end of
// its lease is not done once a later holder has been granted the lock. With etcd's own client:
//
//	client.Txn(ctx).
//		If(clientv3.Compare(clientv3.Value(etcd.TokenKey("", "billing")), "=", strconv.FormatUint(hold.Token(), 10))).
//		Then(clientv3.OpPut("balance", "10"))
//
// Succeeded is false then. A released lock that nobody has taken since still has its last token.
func TokenKey(prefix, name string) string {
	if prefix == "" {
		prefix = defaultPrefix
	}
	return prefix + "/" + lockrecord.Key(name) + tokenSuffix
}

// tokenValue is what a key of [TokenKey] has.
func tokenValue(token uint64) []byte { return strconv.AppendUint(nil, token, 10) }
