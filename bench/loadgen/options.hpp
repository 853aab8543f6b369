#pragma once

#include <cstdint>
#include <string>

namespace fairlead::loadgen {

/// One load run.
struct Options {
  std::string host = "127.0.0.1";  ///< Numeric address of the server.
  std::uint16_t port = 8000;       ///< Its port.
  bool chat = true;                ///< Chat completions; else completions.
  bool stream = true;              ///< SSE answers.
  std::string model = "demo";      ///< Model name in the requests.
  int connections = 32;            ///< Closed loop: this many run back to back.
  int requests = 1000;             ///< Measured requests in all.
  int warmup = 100;                ///< Requests before measuring starts.
  double rate = 0;                 ///< Open loop: requests per second; 0 = closed loop.
  int max_tokens = 64;             ///< Output tokens per request.
  std::string prompt;              ///< User text.
  std::string corpus;  ///< Chat: each prompt takes other texts of this; empty = `prompt`.
  std::size_t history_bytes = 0;  ///< Of them: messages that all requests share.
  std::size_t turn_bytes = 1000;  ///< And the last message, which no two requests share.
  std::size_t prompt_tokens = 0;  ///< Completions: so many token ids instead; 0 = the text.
  int pid = 0;                    ///< Server process, whose CPU time is measured.
  double deadline_seconds = 120;  ///< Gives up and reports after this.
};

}  // namespace fairlead::loadgen
