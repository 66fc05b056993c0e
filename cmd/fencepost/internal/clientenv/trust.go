package clientenv

// trustVariable is one by which a client is told whom to trust.
type trustVariable struct {
	name string
	// before are the variables that name what the client trusted, the first that is set
	// first. Where none is, it is the system's roots.
	before []string
	why    string
}

// replacing are the variables whose file is all that a client trusts.
var replacing = []trustVariable{
	{"SSL_CERT_FILE", nil, "OpenSSL and what asks it for its defaults (Python's ssl and httpx, Ruby, PHP, curl), Go, Rust's native roots, uv"},
	{"CURL_CA_BUNDLE", []string{"CURL_CA_BUNDLE"}, "the curl command, also where it is not built on OpenSSL"},
	{"REQUESTS_CA_BUNDLE", []string{"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}, "Python's requests, which has roots of its own and does not read SSL_CERT_FILE"},
	{"PIP_CERT", []string{"PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}, "pip"},
	{"AWS_CA_BUNDLE", []string{"AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"}, "the AWS command and boto3"},
	{"GIT_SSL_CAINFO", []string{"GIT_SSL_CAINFO"}, "git, which reads nothing else where it is built on GnuTLS, as in Debian"},
	{"CARGO_HTTP_CAINFO", []string{"CARGO_HTTP_CAINFO"}, "cargo"},
	{"NIX_SSL_CERT_FILE", []string{"NIX_SSL_CERT_FILE"}, "programs from nixpkgs, which prefer it to SSL_CERT_FILE"},
	{"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", []string{"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"}, "gRPC in C++, Python, Ruby and Node, which has roots of its own"},
	{"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", []string{"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE"}, "gcloud"},
	{"HTTPLIB2_CA_CERTS", []string{"HTTPLIB2_CA_CERTS"}, "Python's httplib2, on which Google's older clients are built"},
	{"BUNDLE_SSL_CA_CERT", []string{"BUNDLE_SSL_CA_CERT"}, "Ruby's Bundler"},
}

// adding are the variables whose file a client trusts beside its own roots.
var adding = []trustVariable{
	{"NODE_EXTRA_CA_CERTS", []string{"NODE_EXTRA_CA_CERTS"}, "Node and what runs in it (npm, Claude Code), Bun, Deno from 2.8"},
	{"DENO_CERT", []string{"DENO_CERT"}, "Deno before 2.8"},
}

// Not set, and why:
//
//   - SSL_CERT_DIR: it adds to SSL_CERT_FILE, and the user's own goes on to work.
//   - UV_SYSTEM_CERTS: uv reads SSL_CERT_FILE, which goes before the system's store.
//   - NODE_USE_SYSTEM_CA, NODE_OPTIONS: NODE_EXTRA_CA_CERTS does it in every version,
//     and options of Node are the user's.
//   - ALL_PROXY: it is for protocols that are not HTTP as well, which the proxy does not
//     speak; for HTTP and HTTPS their own variables go before it.
