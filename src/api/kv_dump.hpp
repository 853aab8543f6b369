#pragma once

#include <cstddef>
#include <memory>

#include "api/options.hpp"
#include "fleet/fleet.hpp"
#include "kv/index.hpp"
#include "net/http.hpp"
#include "net/task.hpp"
#include "routing/kv_set_view.hpp"
#include "serving/service.hpp"

namespace fairlead::api {

/// Answers `/v1/kv/dump` in one reactor: everything that the events' index holds, one JSON document
/// per line, one target after the other. Copying and writing are the CPU pool's work, and the next
/// piece is written when the client has taken the one before; a reactor writes one dump at a time.
class KvDumpHandler {
 public:
  /// `service` and `options` outlive the handler.
  KvDumpHandler(serving::Service& service, const ApiOptions& options)
      : service_(service), options_(options) {}

  /// Answers one request; the result is the status sent.
  net::Task<int> serve(net::http::Exchange& exchange);

 private:
  struct Target;
  class Stream;
  int refuse(net::http::Exchange& exchange, const Error& error) const;
  net::Task<Result<std::size_t>> dump(Stream& stream, const Target& target);

  serving::Service& service_;
  const ApiOptions& options_;
  bool running_ = false;
};

}  // namespace fairlead::api
