#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "net/http.hpp"

namespace fairlead::api {

/// An exchange whose response is read back from memory.
class FakeExchange final : public net::http::Exchange {
 public:
  FakeExchange() = default;
  explicit FakeExchange(net::http::Request request) { request_ = std::move(request); }

  void respond(int status_code, const net::http::HeaderList& fields,
               std::string_view content) override {
    status = status_code;
    headers = fields;
    body = content;
    started_ = finished_ = true;
  }
  void start(int status_code, const net::http::HeaderList& fields) override {
    status = status_code;
    headers = fields;
    started_ = true;
  }
  void commit() override {
    body += pending_;
    pending_.clear();
    ++commits;
  }
  void finish(const net::http::HeaderList&) override {
    commit();
    finished_ = true;
  }
  void keep(std::shared_ptr<void> kept) override { kept_ = std::move(kept); }
  bool started() const override { return started_; }
  bool finished() const override { return finished_; }
  std::size_t unsent() const override { return unsent_bytes; }
  /// Plays a client that took what waited.
  void drain() {
    unsent_bytes = 0;
    if (on_drain_) {
      on_drain_();
    }
  }
  /// The committed body since the last call.
  std::string take() { return std::exchange(body, {}); }

  int status = 0;
  net::http::HeaderList headers;
  std::string body;
  std::size_t unsent_bytes = 0;
  int commits = 0;

 private:
  bool started_ = false;
  bool finished_ = false;
  std::shared_ptr<void> kept_;
};

}  // namespace fairlead::api
