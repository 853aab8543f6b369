#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "net/http_testing.hpp"

namespace fairlead::net::http {
namespace {

using testing::BytePeer;
using testing::count_of;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::string_literals;
using testing::PipeServer;
using ::testing::StartsWith;

// Answers with what it saw.
Task<> echo(Exchange& exchange) {
  const Request& request = exchange.request();
  std::string body = request.method + "|" + request.path + "|" + request.query + "|";
  for (const Header& header : request.headers) {
    body += header.name + "=" + header.value + ";";
  }
  body += "|" + request.body;
  EXPECT_GE(request.body.capacity(), request.body.size() + kBodyPadding);
  exchange.respond(200, {{"content-type", "text/plain"}}, body);
  co_return;
}

// Streams its body back in pieces, one per turn.
Task<> stream_back(Exchange& exchange) {
  const std::string body = exchange.request().body;
  exchange.start(200, {{"content-type", "text/event-stream"}});
  for (std::size_t i = 0; i < body.size(); i += 10) {
    exchange.out().append(body.substr(i, 10));
    exchange.commit();
    co_await NextTurn();
  }
  exchange.finish({{"x-trailer", "dropped"}});
}

ServerLimits half_close() {
  ServerLimits limits;
  limits.allow_half_close = true;
  return limits;
}

TEST(Http1Server, AnswersAndKeepsTheConnection) {
  PipeServer server(echo);
  BytePeer& peer = server.connect();
  server.send(peer, "GET /a%20b/c?x=%20y HTTP/1.1\r\nHost: h\r\nX-Thing:  v \r\n\r\n");
  ASSERT_TRUE(server.until([&] { return peer.text.ends_with("|"); }));
  EXPECT_THAT(peer.text, StartsWith("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ndate: "));
  EXPECT_THAT(peer.text,
              EndsWith("content-length: 36\r\n\r\nGET|/a b/c|x=%20y|host=h;x-thing=v;|"));
  EXPECT_THAT(peer.text, HasSubstr(" GMT\r\n"));
  EXPECT_THAT(peer.text, Not(HasSubstr("connection")));
  peer.text.clear();
  server.send(peer, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
  ASSERT_TRUE(server.until([&] { return peer.text.ends_with("|abc"); }));
  EXPECT_EQ(server.server->connections(), 1u);
  EXPECT_EQ(server.server->in_flight(), 0u);
  EXPECT_EQ(server.server->counters().requests_total, 2u);
  EXPECT_EQ(server.server->counters().connections_total, 1u);
}

const std::vector<std::string>& corpus() {
  static const std::string chunked =
      "POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  static const std::vector<std::string> requests = {
      "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
      "\r\n\r\nGET /x?q HTTP/1.1\r\nHost: h\r\nA: \r\n\r\n",
      "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\nhello world",
      chunked + "5;ext=\"v\"\r\nhello\r\n00006\r\n world\r\n0\r\nTrailer: t\r\n\r\n",
      chunked + "0\r\nTrailer: t\r\n\r\n",
      "POST /p HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok",
      "POST /p HTTP/1.0\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok"s +
          "GET /last HTTP/1.0\r\n\r\n",
      "GET /1 HTTP/1.1\r\nHost: h\r\n\r\nPOST /2 HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx"s +
          "HEAD /3 HTTP/1.1\r\nHost: h\r\n\r\nGET /4 HTTP/1.1\r\nHost: h\r\n\r\n",
      "GET http://h:80/abs?q HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n",
      "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
      "PRIX / HTTP/1.1\r\nHost: h\r\n\r\n",
      "PRI * HTTP/2.0\r\n\r\nXX",
      "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n",
      // Refused.
      "GET / HTTP/1.1\nHost: h\n\n",
      "GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
  };
  return requests;
}

TEST(Http1Server, AnswersTheSameHoweverTheBytesAreCut) {
  for (const auto& handler : {echo, stream_back}) {
    PipeServer server(handler, half_close());
    for (const std::string& text : corpus()) {
      const std::string_view whole = text;
      const std::string expected = server.talk({whole});
      EXPECT_THAT(expected, StartsWith("HTTP/1.1 "));
      for (std::size_t at = 1; at < whole.size(); ++at) {
        ASSERT_EQ(server.talk({whole.substr(0, at), whole.substr(at)}), expected)
            << text << "\ncut at " << at;
      }
      for (std::size_t max_read = 1; max_read <= 7; ++max_read) {
        ASSERT_EQ(server.talk({whole}, max_read), expected) << text << "\nby " << max_read;
      }
    }
    EXPECT_EQ(server.server->connections(), 0u);
    EXPECT_EQ(server.server->in_flight(), 0u);
  }
}

TEST(Http1Server, DecodesChunksAndDropsTrailers) {
  PipeServer server(echo, half_close());
  const std::string answer = server.talk({corpus()[3]});
  EXPECT_THAT(answer, EndsWith("POST|/p||host=h;transfer-encoding=chunked;|hello world"));
}

TEST(Http1Server, SendsContinueBeforeTheAnswer) {
  PipeServer server(echo);
  BytePeer& peer = server.connect();
  server.send(peer,
              "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n");
  ASSERT_TRUE(server.until([&] { return !peer.text.empty(); }));
  EXPECT_EQ(peer.text, "HTTP/1.1 100 Continue\r\n\r\n");
  server.send(peer, "ok");
  ASSERT_TRUE(server.until([&] { return peer.text.ends_with("|ok"); }));
}

TEST(Http1Server, RefusesATooLargeBodyBeforeItComes) {
  ServerLimits limits;
  limits.body_bytes = 10;
  PipeServer server(echo, limits);
  BytePeer& peer = server.connect();
  server.send(peer,
              "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n");
  ASSERT_TRUE(server.until([&] { return peer.ended; }));
  EXPECT_THAT(peer.text, StartsWith("HTTP/1.1 413 Content Too Large\r\n"));
  EXPECT_THAT(peer.text, HasSubstr("\r\nconnection: close\r\n"));
  EXPECT_THAT(peer.text, HasSubstr("\r\ncontent-type: application/json\r\n"));
  EXPECT_THAT(peer.text, EndsWith("\r\n\r\n413 the request body is larger than 10 bytes"));
  EXPECT_THAT(peer.text, Not(HasSubstr("100 Continue")));
  EXPECT_EQ(server.server->counters().bad_requests, 1u);
  EXPECT_EQ(server.server->counters().requests_total, 0u);
  // Late body bytes are read and dropped until the client closes.
  server.send(peer, std::string(100, 'x'));
  server.settle();
  EXPECT_EQ(server.server->connections(), 1u);
  testing::in_turn(server.reactor, [&] { peer.close(); });
  EXPECT_TRUE(server.until([&] { return server.server->connections() == 0; }));
}

TEST(Http1Server, RefusesATooLargeChunkedBody) {
  ServerLimits limits = half_close();
  limits.body_bytes = 10;
  PipeServer server(echo, limits);
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_THAT(server.talk({head + "a\r\n0123456789\r\n0\r\n\r\n"}), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(server.talk({head + "5\r\n01234\r\n6\r\n012345\r\n0\r\n\r\n"}),
              StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(server.talk({head + "ffffffffffffffff\r\n"}), StartsWith("HTTP/1.1 413"));
}

TEST(Http1Server, BoundsHeadsAndTrailers) {
  ServerLimits limits = half_close();
  limits.header_bytes = 100;
  limits.header_count = 3;
  PipeServer server(echo, limits);
  const std::string start = "GET / HTTP/1.1\r\nHost: h\r\n";
  const std::string fits = start + "a: " + std::string(100 - start.size() - 7, 'x') + "\r\n\r\n";
  ASSERT_EQ(fits.size(), 100u);
  EXPECT_THAT(server.talk({fits}), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(server.talk({start + "a: " + std::string(100 - start.size() - 6, 'x') + "\r\n\r\n"}),
              StartsWith("HTTP/1.1 431 Request Header Fields Too Large\r\n"));
  EXPECT_THAT(server.talk({start + "a: " + std::string(100, 'x')}), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(server.talk({start + "a:\r\nb:\r\n\r\n"}), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(server.talk({start + "a:\r\nb:\r\nc:\r\n\r\n"}), StartsWith("HTTP/1.1 431"));
  const std::string chunked = start + "Transfer-Encoding: chunked\r\n\r\n0";
  EXPECT_THAT(server.talk({chunked + "\r\na:\r\nb:\r\nc:\r\n\r\n"}), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(server.talk({chunked + "\r\na:\r\nb:\r\nc:\r\nd:\r\n\r\n"}),
              StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(server.talk({chunked + "\r\na:" + std::string(100, 'x') + "\r\n\r\n"}),
              StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(server.talk({chunked + ";e=" + std::string(100, 'x') + "\r\n\r\n"}),
              StartsWith("HTTP/1.1 431"));
}

TEST(Http1Server, RefusesWhatTwoParsersCouldReadInTwoWays) {
  PipeServer server(echo, half_close());
  const std::string ok = "POST / HTTP/1.1\r\nHost: h\r\n";
  const std::string chunks = "\r\n5\r\nhello\r\n0\r\n\r\n";
  const std::vector<std::string> bad = {
      // Length and coding.
      ok + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n" + chunks,
      ok + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n" + chunks,
      ok + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
      ok + "Content-Length: 5, 5\r\n\r\nhello",
      ok + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
      ok + "Content-Length: +5\r\n\r\nhello", ok + "Content-Length: -5\r\n\r\nhello",
      ok + "Content-Length: 0x5\r\n\r\nhello", ok + "Content-Length: 5 5\r\n\r\nhello",
      ok + "Content-Length:\r\n\r\nhello", ok + "Content-Length: 18446744073709551621\r\n\r\nhello",
      ok + "Transfer-Encoding: identity\r\n\r\nhello",
      ok + "Transfer-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
      ok + "Transfer-Encoding: gzip, chunked\r\n" + chunks,
      ok + "Transfer-Encoding: chunked, chunked\r\n" + chunks,
      ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n" + chunks,
      ok + "Transfer-Encoding: xchunked\r\n" + chunks,
      ok + "Transfer-Encoding: \"chunked\"\r\n" + chunks,
      ok + "Transfer-Encoding: chunked;q=1\r\n" + chunks,
      ok +
          "Transfer-Encoding: \x0b"
          "chunked\r\n" +
          chunks,
      ok + "Transfer-Encoding:\r\n" + chunks,
      "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n" + chunks,
      // Chunks.
      ok + "Transfer-Encoding: chunked\r\n\r\n5\nhello\n0\n\n",
      ok + "Transfer-Encoding: chunked\r\n\r\n 5\r\nhello\r\n0\r\n\r\n",
      ok + "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
      ok + "Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n",
      ok + "Transfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
      ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloxx0\r\n\r\n",
      ok + "Transfer-Encoding: chunked\r\n\r\n5;a=\"\n\"\r\nhello\r\n0\r\n\r\n",
      ok + "Transfer-Encoding: chunked\r\n\r\n5;\nhello\r\n0\r\n\r\n",
      ok + "Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n",
      ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n folded: x\r\n\r\n",
      ok + "Transfer-Encoding: chunked\r\n\r\n0\r\nx: y\nz: y\r\n\r\n",
      ok + "Transfer-Encoding: chunked\r\n\r\n0\r\nx\r\n\r\n",
      ok + "Transfer-Encoding: chunked\r\n\r\n5;a=\"\r\nhello\r\n0\r\n\"\r\n\r\n",
      ok + "Transfer-Encoding: chunked\r\n\r\n\r\n0\r\n\r\n",
      ok + "Transfer-Encoding: chunked\r\n\r\n;a\r\n0\r\n\r\n",
      ok + "Transfer-Encoding: chunked\r\n\r\n-1\r\nhello\r\n0\r\n\r\n",
      // Lines and fields.
      ok + "Content-Length : 5\r\n\r\nhello", ok + " Content-Length: 5\r\n\r\nhello",
      ok + "X: a\r\n folded\r\n\r\n", ok + "X: a\r\n\tfolded\r\n\r\n",
      ok + "X: a\nContent-Length: 5\r\n\r\nhello", ok + "X: a\rContent-Length: 5\r\n\r\nhello",
      ok + "X: a\0b\r\n\r\n"s, ok + "X\0: a\r\n\r\n"s, ok + "X\x80: a\r\n\r\n",
      ok + ": nameless\r\n\r\n", ok + "no colon\r\n\r\n", ok + "X: \x7f\r\n\r\n",
      "GET / HTTP/1.1\r\n Host: h\r\n\r\n",
      // The host.
      "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
      // The request line.
      "GET  / HTTP/1.1\r\nHost: h\r\n\r\n", "GET /  HTTP/1.1\r\nHost: h\r\n\r\n",
      "GET / HTTP/1.1 \r\nHost: h\r\n\r\n", "GET\t/\tHTTP/1.1\r\nHost: h\r\n\r\n",
      "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", "GET / http/1.1\r\nHost: h\r\n\r\n",
      "GET / HTTP/1.2\r\nHost: h\r\n\r\n", "GET / HTTP/2.0\r\nHost: h\r\n\r\n",
      "GET / HTTP/11\r\nHost: h\r\n\r\n", "GET /\r\n\r\n", "G(T / HTTP/1.1\r\nHost: h\r\n\r\n",
      " GET / HTTP/1.1\r\nHost: h\r\n\r\n", "\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
      "\r\rGET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET relative HTTP/1.1\r\nHost: h\r\n\r\n",
      "GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n", "GET http:///x HTTP/1.1\r\nHost: h\r\n\r\n",
      "GET http://u@h/x HTTP/1.1\r\nHost: h\r\n\r\n", "GET /%0 HTTP/1.1\r\nHost: h\r\n\r\n",
      "GET /%g0 HTTP/1.1\r\nHost: h\r\n\r\n", "GET /a%00b HTTP/1.1\r\nHost: h\r\n\r\n",
      "CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n",
      "\x16\x03\x01\x02",  // a TLS client
  };
  std::size_t refused = 0;
  for (const std::string& text : bad) {
    // Nothing behind a refused message may be taken for a request.
    const std::string answer = server.talk({text + "GET /next HTTP/1.1\r\nHost: h\r\n\r\n"});
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 Bad Request\r\n")) << text;
    EXPECT_EQ(count_of(answer, "HTTP/1.1 400"), 1u) << text;
    EXPECT_EQ(count_of(answer, "/next"), 0u) << text;
    EXPECT_EQ(server.server->counters().bad_requests, ++refused) << text;
  }
  EXPECT_EQ(server.server->counters().requests_total, 0u);
  EXPECT_THAT(server.talk({ok + "Expect: magic\r\n\r\n"}),
              StartsWith("HTTP/1.1 417 Expectation Failed\r\n"));
}

TEST(Http1Server, ReadsUnusualTargets) {
  PipeServer server(echo, half_close());
  const auto seen = [&](const std::string& target) {
    const std::string answer =
        server.talk({"GET " + target + " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"});
    return answer.substr(answer.find("\r\n\r\n") + 4);
  };
  EXPECT_THAT(seen("/org%2Fmodel%3Av1?a=b?c"), StartsWith("GET|/org/model:v1|a=b?c|"));
  EXPECT_THAT(seen("HTTP://host:1?q"), StartsWith("GET|/|q|"));
  EXPECT_THAT(seen("https://host"), StartsWith("GET|/||"));
  EXPECT_THAT(seen("//x"), StartsWith("GET|//x||"));
  EXPECT_THAT(seen("/\xc3\xa9%C3%A9"), StartsWith("GET|/\xc3\xa9\xc3\xa9||"));
  EXPECT_THAT(seen("/?"), StartsWith("GET|/||"));
}

TEST(Http1Server, AnswersHeadWithoutABody) {
  PipeServer server(echo, half_close());
  const std::string answer = server.talk({"HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n"});
  EXPECT_THAT(answer, HasSubstr("\r\ncontent-length: 17\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

TEST(Http1Server, StreamsInChunksOnePerTurn) {
  PipeServer server(stream_back);
  BytePeer& peer = server.connect();
  server.send(peer,
              "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 25\r\n\r\n" + std::string(25, 'z'));
  ASSERT_TRUE(server.until([&] { return peer.text.ends_with("0\r\n\r\n"); }));
  EXPECT_THAT(peer.text, HasSubstr("\r\ntransfer-encoding: chunked\r\n"));
  EXPECT_THAT(peer.text, EndsWith("\r\n\r\na\r\nzzzzzzzzzz\r\na\r\nzzzzzzzzzz\r\n5\r\nzzzzz\r\n"
                                  "0\r\n\r\n"));
  EXPECT_THAT(peer.text, Not(HasSubstr("dropped")));
}

TEST(Http1Server, StreamsToHttp10UntilTheEndOfTheConnection) {
  PipeServer server(stream_back);
  BytePeer& peer = server.connect();
  server.send(peer,
              "POST / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 12\r\n\r\n"
              "0123456789ab");
  ASSERT_TRUE(server.until([&] { return peer.ended; }));
  EXPECT_THAT(peer.text, HasSubstr("\r\nconnection: close\r\n"));
  EXPECT_THAT(peer.text, EndsWith("\r\n\r\n0123456789ab"));
}

TEST(Http1Server, CoalescesWhatOneTurnProduced) {
  PipeServer server([](Exchange& exchange) -> Task<> {
    exchange.start(200, {});
    for (int i = 0; i < 100; ++i) {
      exchange.out() += "data\n";
      exchange.commit();
    }
    exchange.out() += "not committed";
    co_await NextTurn();
    exchange.finish();
  });
  BytePeer& peer = server.connect();
  server.send(peer, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_TRUE(server.until([&] { return peer.text.ends_with("0\r\n\r\n"); }));
  EXPECT_THAT(peer.text, HasSubstr("\r\n\r\n1f4\r\ndata\n"));
  EXPECT_THAT(peer.text, EndsWith("data\n\r\nd\r\nnot committed\r\n0\r\n\r\n"));
}

TEST(Http1Server, FramesResponsesItself) {
  PipeServer server(
      [](Exchange& exchange) -> Task<> {
        exchange.respond(exchange.request().path == "/204" ? 204 : 599,
                         {{"content-length", "999"},
                          {"transfer-encoding", "chunked"},
                          {"x-bad", "a\r\nset-cookie: b"},
                          {"connection", "close"}},
                         "body");
        exchange.respond(200, {}, "twice");
        exchange.start(200, {});
        exchange.out() += "more";
        exchange.commit();
        exchange.finish();
        co_return;
      },
      half_close());
  EXPECT_EQ(server.talk({"GET / HTTP/1.1\r\nHost: h\r\n\r\n"}),
            "HTTP/1.1 599 Unknown\r\nx-bad: a  set-cookie: b\r\ncontent-length: 4\r\n"
            "connection: close\r\n\r\nbody");
  EXPECT_EQ(server.talk({"GET /204 HTTP/1.1\r\nHost: h\r\n\r\n"}),
            "HTTP/1.1 204 No Content\r\nx-bad: a  set-cookie: b\r\nconnection: close\r\n\r\n");
}

TEST(Http1Server, ReadsLargeBodiesWhole) {
  PipeServer server(
      [](Exchange& exchange) -> Task<> {
        const std::string body = std::move(exchange.request().body);
        EXPECT_GE(body.capacity(), body.size() + kBodyPadding);
        exchange.respond(200, {}, body);
        co_return;
      },
      half_close());
  std::string body(3 * 1024 * 1024, '\0');
  for (std::size_t i = 0; i < body.size(); ++i) {
    body[i] = static_cast<char>(i * 31 + i / 1000);
  }
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\n";
  const std::string plain =
      head + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  EXPECT_THAT(server.talk({plain}), EndsWith("\r\n\r\n" + body));
  std::string chunked = head + "Transfer-Encoding: chunked\r\n\r\n";
  for (std::size_t at = 0; at < body.size(); at += 300'000) {
    const std::string piece = body.substr(at, 300'000);
    chunked += fmt::format("{:x}\r\n", piece.size()) + piece + "\r\n";
  }
  EXPECT_THAT(server.talk({chunked + "0\r\n\r\n"}), EndsWith("\r\n\r\n" + body));
}

}  // namespace
}  // namespace fairlead::net::http
