#include "net/http1_parser.hpp"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <limits>

#include "net/http1_chunks.hpp"
#include "net/server_connection.hpp"

namespace fairlead::net::http {
namespace {

namespace beast = boost::beast::http;
using boost::beast::error_code;
using BeastView = boost::beast::string_view;
using BodyLength = boost::optional<std::uint64_t>;

std::string_view view(BeastView text) { return {text.data(), text.size()}; }

char to_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; }

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), to_lower);
  return out;
}

bool equals_lower(std::string_view text, std::string_view wanted) {
  return std::ranges::equal(text, wanted, {}, to_lower);
}

bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

bool is_host(std::string_view text) {
  return std::ranges::none_of(
      text, [](char c) { return std::string_view(" \t/\\?#@,").contains(c) || c == '\x7f'; });
}

std::string_view describe(const error_code& error) {
  switch (static_cast<beast::error>(error.value())) {
    case beast::error::bad_method: return "malformed request method";
    case beast::error::bad_target: return "malformed request target";
    case beast::error::bad_version: return "malformed or unsupported HTTP version";
    case beast::error::bad_status:
    case beast::error::bad_reason: return "malformed status line";
    case beast::error::bad_field: return "malformed header field name";
    case beast::error::bad_value: return "malformed header field value";
    case beast::error::bad_content_length:
    case beast::error::multiple_content_length: return "malformed or conflicting Content-Length";
    case beast::error::bad_transfer_encoding: return "malformed or conflicting Transfer-Encoding";
    default: return "malformed HTTP message";
  }
}

// The part of both directions: fields go to a list, framing fields are read once and strictly.
template <bool is_request>
class HeadParser : public beast::basic_parser<is_request> {
 public:
  explicit HeadParser(HeaderList& headers) : headers_(headers) {
    this->header_limit(std::numeric_limits<std::uint32_t>::max());
    this->body_limit(boost::none);
  }

  // Parses a whole head; empty when it is good.
  std::optional<Refusal> parse(std::string_view head) {
    error_code error;
    const std::size_t consumed =
        this->put(boost::asio::const_buffer(head.data(), head.size()), error);
    if (refusal_) {
      return refusal_;
    }
    if (error) {
      return Refusal{400, describe(error)};
    }
    if (consumed != head.size() || !this->is_header_done()) {
      return Refusal{400, "malformed HTTP message"};
    }
    return std::nullopt;
  }

 protected:
  void refuse(error_code& error, Refusal refusal) {
    refusal_ = refusal;
    error = beast::error::bad_value;
  }

  void on_field_impl(beast::field field, BeastView name, BeastView value, error_code& error) final {
    const std::string_view text = view(value);
    switch (field) {
      case beast::field::content_length:
        // Beast takes repeated and listed equal lengths; a proxy in front may not.
        if (lengths_++ > 0 || !is_number(text)) {
          return refuse(error, {400, "malformed or repeated Content-Length"});
        }
        break;
      case beast::field::transfer_encoding:
        if (encodings_++ > 0 || !equals_lower(text, "chunked")) {
          return refuse(error, {400, "the only supported Transfer-Encoding is chunked"});
        }
        break;
      case beast::field::host:
        if (hosts_++ > 0 || !is_host(text)) {
          return refuse(error, {400, "malformed or repeated Host"});
        }
        break;
      case beast::field::expect:
        expects_continue_ = equals_lower(text, "100-continue");
        expects_other_ = expects_other_ || !expects_continue_;
        break;
      default: break;
    }
    headers_.add(lower(view(name)), std::string(text));
  }

  void on_request_impl(beast::verb, BeastView, BeastView, int, error_code&) override {}
  void on_response_impl(int, BeastView, int, error_code&) override {}
  void on_header_impl(error_code&) final {}
  void on_body_init_impl(const BodyLength&, error_code&) final {}
  std::size_t on_body_impl(BeastView body, error_code&) final { return body.size(); }
  void on_chunk_header_impl(std::uint64_t, BeastView, error_code&) final {}
  std::size_t on_chunk_body_impl(std::uint64_t, BeastView body, error_code&) final {
    return body.size();
  }
  void on_finish_impl(error_code&) final {}

  HeaderList& headers_;
  std::optional<Refusal> refusal_;
  int lengths_ = 0;
  int encodings_ = 0;
  int hosts_ = 0;
  bool expects_continue_ = false;
  bool expects_other_ = false;
};

class RequestHead final : public HeadParser<true> {
 public:
  explicit RequestHead(Request& request) : HeadParser(request.headers), request_(request) {}

  std::expected<RequestFraming, Refusal> framing() const {
    if (http11_ && hosts_ == 0) {
      return std::unexpected(Refusal{400, "an HTTP/1.1 request needs a Host"});
    }
    if (!http11_ && encodings_ > 0) {
      return std::unexpected(Refusal{400, "HTTP/1.0 knows no Transfer-Encoding"});
    }
    if (encodings_ > 0 && lengths_ > 0) {
      return std::unexpected(Refusal{400, "both Content-Length and Transfer-Encoding"});
    }
    if (http11_ && expects_other_) {
      return std::unexpected(Refusal{417, "the only supported expectation is 100-continue"});
    }
    RequestFraming out;
    out.http11 = http11_;
    out.keep_alive = keep_alive();
    out.chunked = encodings_ > 0;
    out.expect_continue = http11_ && expects_continue_;
    out.content_length = content_length().value_or(0);
    return out;
  }

 private:
  void on_request_impl(beast::verb verb, BeastView method, BeastView target, int version,
                       error_code& error) override {
    http11_ = version == 11;
    request_.method = view(method);
    if (verb == beast::verb::connect || !split_target(view(target), request_)) {
      refuse(error, {400, "malformed request target"});
    }
  }

  Request& request_;
  bool http11_ = true;
};

class ResponseHead final : public HeadParser<false> {
 public:
  explicit ResponseHead(ClientResponse& response)
      : HeadParser(response.headers), response_(response) {}

  std::expected<ResponseFraming, Refusal> framing(bool without_body) const {
    if (encodings_ > 0 && lengths_ > 0) {
      return std::unexpected(Refusal{400, "both Content-Length and Transfer-Encoding"});
    }
    ResponseFraming out;
    out.keep_alive = keep_alive();
    if (without_body || response_.status == 204 || response_.status == 304 ||
        response_.status / 100 == 1) {
      out.content_length = 0;
    } else if (encodings_ > 0) {
      out.chunked = true;
    } else if (lengths_ > 0) {
      out.content_length = content_length().value_or(0);
    }
    return out;
  }

 private:
  void on_response_impl(int status, BeastView, int, error_code& error) override {
    response_.status = status;
    if (status < 100) {
      error = beast::error::bad_status;
    }
  }

  ClientResponse& response_;
};

}  // namespace

HeadScanner::Status HeadScanner::scan(std::string_view bytes, std::size_t max_bytes,
                                      std::size_t max_fields) {
  if (!bytes.empty() && !is_token_char(bytes.front())) {
    return Status::Malformed;
  }
  while (true) {
    const std::size_t end = bytes.find('\n', position_);
    if (end == std::string_view::npos) {
      position_ = bytes.size();
      return bytes.size() > max_bytes ? Status::TooLarge : Status::NeedMore;
    }
    if (end >= max_bytes) {
      return Status::TooLarge;
    }
    if (end == 0 || bytes[end - 1] != '\r') {
      return Status::Malformed;
    }
    position_ = end + 1;
    if (end - 1 == line_start_) {
      return Status::Complete;
    }
    if (bytes[line_start_] == ' ' || bytes[line_start_] == '\t') {
      return Status::Malformed;
    }
    if (++lines_ > max_fields + 1) {  // the first line is no field
      return Status::TooManyFields;
    }
    line_start_ = position_;
  }
}

std::expected<RequestFraming, Refusal> parse_request_head(std::string_view head, Request& request) {
  request.headers.clear();
  RequestHead parser(request);
  if (const auto refusal = parser.parse(head)) {
    return std::unexpected(*refusal);
  }
  return parser.framing();
}

std::expected<ResponseFraming, Refusal> parse_response_head(std::string_view head,
                                                            bool to_head_request,
                                                            ClientResponse& response) {
  response.headers.clear();
  ResponseHead parser(response);
  if (const auto refusal = parser.parse(head)) {
    return std::unexpected(*refusal);
  }
  return parser.framing(to_head_request);
}

}  // namespace fairlead::net::http
