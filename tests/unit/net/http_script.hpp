#pragma once

#include <functional>
#include <string_view>

#include "net/event.hpp"
#include "net/http.hpp"

namespace fairlead::net::http {

/// The smallest request.
inline constexpr std::string_view kGet = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

// Counts the requests whose handler holds something.
struct Held {
  explicit Held(int& counter) : count(counter) { ++count; }
  ~Held() { --count; }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  int& count;
};

// What a test tells the handler, and what it sees of it.
struct Script {
  int held = 0;
  Exchange* exchange = nullptr;
  Event go;
};

inline Task<> wait_then_answer(Exchange& exchange, Script& script) {
  const Held held(script.held);
  script.exchange = &exchange;
  co_await script.go.wait();
  script.go.reset();
  exchange.respond(200, {}, exchange.request().path);
}

inline Task<> start_then_wait(Exchange& exchange, Script& script) {
  const Held held(script.held);
  script.exchange = &exchange;
  exchange.start(200, {});
  co_await script.go.wait();
  exchange.finish();
}

inline Handler bind(Task<> (*handler)(Exchange&, Script&), Script& script) {
  return [handler, &script](Exchange& exchange) { return handler(exchange, script); };
}

}  // namespace fairlead::net::http
