#include "fleet/endpoint.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace fairlead::fleet {
namespace {

struct IdVector {
  std::string_view url;
  std::uint64_t hash;
  WorkerId id;
};

constexpr IdVector kIdVectors[] = {
    {"http://127.0.0.1:18701", 0x982c491b2b180b3c, 3458080756468540},
    {"http://127.0.0.1:18711", 0x286ce2db7d6fc3fd, 3627132050719741},
    {"http://127.0.0.1:30001", 0x0ceada3d86290a18, 3054707545803288},
    {"http://127.0.0.1:30002", 0x38063ff269453c68, 1759160241044584},
    {"http://localhost:50051", 0x2338096c6a314f4e, 6765760683790158},
    {"http://[2001:db8::1]:50051", 0xd8773063d521982d, 6527129799989293},
};

TEST(WorkerIds, AreThoseOfThePublishedVectors) {
  for (const IdVector& vector : kIdVectors) {
    EXPECT_EQ(endpoint_hash(vector.url), vector.hash) << vector.url;
    EXPECT_EQ(worker_id(vector.url), vector.id) << vector.url;
  }
}

TEST(WorkerIds, HashEveryLengthOfTheLastWord) {
  // Vectors of Rust's default hasher over a `str`, known from instance ids of other systems.
  EXPECT_EQ(endpoint_hash("worker-0") & 0x001F'FFFF'FFFF'FFFF, 0x43710f49c0cffULL);
}

TEST(EndpointParsing, NormalisesEverySpellingOfOnePlace) {
  for (const std::string_view text :
       {"10.0.0.7:50051", "http://10.0.0.7:50051", "grpc://10.0.0.7:50051",
        "http://10.0.0.7:50051/", "  http://10.0.0.7:50051 \t", "HTTP://10.0.0.7:50051",
        "Grpc://10.0.0.7:50051/"}) {
    const Result<Endpoint> endpoint = parse_endpoint(text);
    ASSERT_TRUE(endpoint) << text << ": " << endpoint.error().message;
    EXPECT_EQ(endpoint->url, "http://10.0.0.7:50051");
    EXPECT_EQ(endpoint->authority, "10.0.0.7:50051");
    EXPECT_EQ(endpoint->host, "10.0.0.7");
    EXPECT_EQ(endpoint->authority_host(), "10.0.0.7");
    EXPECT_EQ(endpoint->port, 50051);
  }
}

TEST(EndpointParsing, KeepsTheBracketsOfIpv6) {
  for (const std::string_view text :
       {"[2001:db8::1]:50051", "http://[2001:DB8:0:0::1]:50051/", "grpc://[2001:db8::1]:50051"}) {
    const Result<Endpoint> endpoint = parse_endpoint(text);
    ASSERT_TRUE(endpoint) << text;
    EXPECT_EQ(endpoint->url, "http://[2001:db8::1]:50051");
    EXPECT_EQ(endpoint->host, "2001:db8::1");
    EXPECT_EQ(endpoint->authority_host(), "[2001:db8::1]");
    EXPECT_EQ(worker_id(endpoint->url), 6527129799989293U);
  }
}

TEST(EndpointParsing, HostNamesAreLowerCaseAndPort80IsTheDefault) {
  const Result<Endpoint> named = parse_endpoint("http://Engine_1.svc.Local:9000");
  ASSERT_TRUE(named);
  EXPECT_EQ(named->url, "http://engine_1.svc.local:9000");
  for (const std::string_view text :
       {"http://engine", "http://engine:80/", "engine:80", "engine:"}) {
    const Result<Endpoint> endpoint = parse_endpoint(text);
    ASSERT_TRUE(endpoint) << text;
    EXPECT_EQ(endpoint->url, "http://engine");
    EXPECT_EQ(endpoint->authority, "engine:80");
    EXPECT_EQ(endpoint->port, 80);
  }
}

struct BadEndpoint {
  std::string_view text;
  std::string_view reason;
};

constexpr BadEndpoint kBadEndpoints[] = {
    {"", "empty"},
    {" \t ", "empty"},
    {"https://10.0.0.7:50051", "TLS"},
    {"grpcs://10.0.0.7:50051", "TLS"},
    {"HTTPS://10.0.0.7:50051", "TLS"},
    {"tcp://10.0.0.7:50051", "scheme"},
    {"://10.0.0.7:50051", "scheme"},
    {"unix:///run/engine.sock", "scheme"},
    {"http://", "no host"},
    {"http://:50051", "no host"},
    {":50051", "no host"},
    {"http:///", "no host"},
    {"http://user@10.0.0.7:50051", "user info"},
    {"http://user:secret@10.0.0.7:50051", "user info"},
    {"http://10.0.0.7:50051/v1", "path"},
    {"http://10.0.0.7:50051//", "path"},
    {"10.0.0.7:50051/v1", "path"},
    {"http://10.0.0.7:50051?x=1", "query"},
    {"http://10.0.0.7:50051/?", "query"},
    {"http://10.0.0.7:50051#top", "fragment"},
    {"http://10.0.0.7:50051/#", "fragment"},
    {"http://10.0.0.7:0", "port"},
    {"http://10.0.0.7:65536", "port"},
    {"http://10.0.0.7:-1", "port"},
    {"http://10.0.0.7:5005x", "port"},
    {"2001:db8::1:50051", "brackets"},
    {"http://[2001:db8::1:50051", "`[`"},
    {"http://[2001:db8::1]50051", "`]`"},
    {"http://[nonsense]:50051", "IPv6"},
    {"http://[fe80::1%eth0]:50051", "IPv6"},
    {"http://10.0.0.7 :50051", "character"},
    {"http://exa mple:50051", "character"},
};

TEST(EndpointParsing, NamesTheTextAndTheReasonOfEveryError) {
  for (const BadEndpoint& bad : kBadEndpoints) {
    const Result<Endpoint> endpoint = parse_endpoint(bad.text);
    ASSERT_FALSE(endpoint) << bad.text;
    EXPECT_EQ(endpoint.error().code, ErrorCode::InvalidRequest);
    EXPECT_NE(endpoint.error().message.find(bad.reason), std::string::npos)
        << bad.text << ": " << endpoint.error().message;
    EXPECT_NE(endpoint.error().message.find("engine endpoint `"), std::string::npos);
  }
}

TEST(EndpointParsing, SplitsCommaLists) {
  const Result<std::vector<Endpoint>> endpoints = parse_endpoints("a:1, http://b:2 ,grpc://c:3");
  ASSERT_TRUE(endpoints);
  ASSERT_EQ(endpoints->size(), 3U);
  EXPECT_EQ((*endpoints)[1].url, "http://b:2");
  EXPECT_FALSE(parse_endpoints("a:1,,b:2"));
  EXPECT_FALSE(parse_endpoints(""));
  EXPECT_FALSE(parse_endpoints("a:1,https://b:2"));
}

TEST(ZmqEndpoints, WildcardHostsBecomeTheEnginesHost) {
  EXPECT_EQ(replace_wildcard_host("tcp://*:5557", "10.0.0.7"), "tcp://10.0.0.7:5557");
  EXPECT_EQ(replace_wildcard_host("tcp://0.0.0.0:5557", "engine"), "tcp://engine:5557");
  EXPECT_EQ(replace_wildcard_host("tcp://[::]:5557", "[2001:db8::1]"), "tcp://[2001:db8::1]:5557");
  EXPECT_EQ(replace_wildcard_host("tcp://10.1.1.1:5557", "engine"), "tcp://10.1.1.1:5557");
  EXPECT_EQ(replace_wildcard_host("tcp://0.0.0.0.example:1", "e"), "tcp://0.0.0.0.example:1");
  EXPECT_EQ(replace_wildcard_host("ipc:///run/x", "engine"), "ipc:///run/x");
  EXPECT_EQ(replace_wildcard_host("", "engine"), "");
}

}  // namespace
}  // namespace fairlead::fleet
