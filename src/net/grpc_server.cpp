#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.hpp"
#include "net/event.hpp"
#include "net/grpc.hpp"
#include "net/grpc_wire.hpp"
#include "net/task_group.hpp"

namespace fairlead::net::grpc {
namespace {

constexpr std::string_view kContentType = "application/grpc";

void add_status(http::HeaderList& fields, const Status& status, const Metadata& trailers) {
  fields.add("grpc-status", std::to_string(static_cast<int>(status.code)));
  if (!status.message.empty()) {
    fields.add("grpc-message", percent_encode(status.message));
  }
  for (const auto& [name, value] : trailers) {
    fields.add(name, name.ends_with("-bin") ? base64_encode(value) : value);
  }
}

Task<> run_and_tell(const Service::Method& method, ServerCall& call, Event& done) {
  try {
    co_await method(call);
  } catch (const std::exception& e) {
    log::error("a gRPC method ended with an exception: {}", e.what());
    call.finish({StatusCode::Internal, "internal error"});
  }
  done.set();
}

}  // namespace

void ServerCall::write(std::string_view message) {
  if (finished_) {
    return;
  }
  if (!exchange_.started()) {
    exchange_.start(200, {{"content-type", std::string(kContentType)}});
  }
  append_message(exchange_.out(), message);
  exchange_.commit();
}

void ServerCall::finish(const Status& status, const Metadata& trailers) {
  if (std::exchange(finished_, true)) {
    return;
  }
  http::HeaderList fields;
  if (exchange_.started()) {
    add_status(fields, status, trailers);
    exchange_.finish(fields);
  } else {
    fields.add("content-type", std::string(kContentType));
    add_status(fields, status, trailers);
    exchange_.respond(200, fields, {});
  }
}

void Service::add(std::string path, Method method) {
  methods_.emplace_back(std::move(path), std::move(method));
}

http::Handler Service::handler() {
  return [this](http::Exchange& exchange) { return serve(exchange); };
}

const Service::Method* Service::find(std::string_view path) const {
  const auto found =
      std::ranges::find_if(methods_, [&](const auto& entry) { return entry.first == path; });
  return found == methods_.end() ? nullptr : &found->second;
}

bool Service::read_request(ServerCall& call, std::size_t max_bytes) {
  MessageReader reader(max_bytes);
  std::string_view input = call.exchange().request().body;
  switch (reader.next(input, call.request_)) {
    case MessageReader::Status::NeedMore:
      call.finish({StatusCode::Internal, "the request does not hold a whole message"});
      return false;
    case MessageReader::Status::Compressed:
      call.finish({StatusCode::Unimplemented, "compressed requests are not supported"});
      return false;
    case MessageReader::Status::TooLarge:
      call.finish({StatusCode::OutOfRange, too_large_text(reader.length(), max_bytes)});
      return false;
    case MessageReader::Status::Message: break;
  }
  if (!input.empty()) {
    call.finish({StatusCode::Unimplemented, "client streaming is not supported"});
    return false;
  }
  return true;
}

Task<> Service::run(const Method& method, ServerCall& call) {
  const auto timeout = call.metadata("grpc-timeout");
  const auto limit = timeout ? parse_timeout(*timeout) : std::nullopt;
  Event done;
  if (!limit) {
    co_await run_and_tell(method, call, done);
  } else {
    TaskGroup group;
    group.spawn(run_and_tell(method, call, done));
    const bool in_time = co_await done.wait_for(*limit);
    if (!in_time) {
      group.cancel();
      call.finish({StatusCode::DeadlineExceeded, "deadline exceeded"});
    }
  }
  call.finish({});
}

Task<> Service::serve(http::Exchange& exchange) {
  const http::Request& request = exchange.request();
  const auto content_type = request.headers.find("content-type");
  if (!request.http2 || !content_type || !is_grpc_content_type(*content_type)) {
    exchange.respond(415, {{"content-type", "text/plain"}}, "this port speaks gRPC over HTTP/2\n");
    co_return;
  }
  ServerCall call(exchange);
  const Method* const method = find(request.path);
  if (!method || request.method != "POST") {
    call.finish({StatusCode::Unimplemented, {}});
    co_return;
  }
  const auto timeout = request.headers.find("grpc-timeout");
  if (timeout && !parse_timeout(*timeout)) {
    call.finish({StatusCode::Internal, "malformed grpc-timeout"});
    co_return;
  }
  if (read_request(call, max_request_bytes_)) {
    co_await run(*method, call);
  }
}

}  // namespace fairlead::net::grpc
