#include "engine/sglang_grpc/first_message.hpp"

#include <memory>
#include <optional>
#include <utility>

#include "net/event.hpp"

namespace fairlead::engine::sglang_grpc {
namespace {

using net::grpc::Status;
using net::grpc::StatusCode;

class Observer final : public net::grpc::CallObserver {
 public:
  void on_message(std::string_view message) override {
    if (!answer) {
      answer = std::string(message);
      event.set();
    }
  }
  void on_end(const Status& status) override {
    if (!answer) {
      answer = std::unexpected(
          status.ok() ? Status{StatusCode::Unknown, "a stream without messages"} : status);
      event.set();
    }
  }

  std::optional<std::expected<std::string, Status>> answer;
  net::Event event;
};

}  // namespace

net::Task<std::expected<std::string, Status>> first_message(net::grpc::Channel& channel,
                                                            std::string_view path,
                                                            net::TimePoint deadline) {
  Observer observer;
  const std::unique_ptr<net::grpc::Call> call = channel.start(path, {}, {}, observer, deadline);
  co_await observer.event.wait();
  co_return std::move(*observer.answer);
}

}  // namespace fairlead::engine::sglang_grpc
