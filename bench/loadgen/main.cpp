// links: fl_net
#include <CLI/CLI.hpp>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "loadgen/options.hpp"
#include "loadgen/run.hpp"

namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

// Load generator: open and closed loop, checks every answer against a folded one, prints one line
// of JSON.
int main(int argc, char** argv) {
  fairlead::loadgen::Options options;
  std::string address = "127.0.0.1:8000";
  std::string prompt_file;
  std::string corpus_file;
  bool completions = false;
  bool unary = false;
  CLI::App app{"fairlead-loadgen"};
  app.add_option("--address", address, "HOST:PORT of the server");
  app.add_option("--model", options.model);
  app.add_flag("--completions", completions, "use /v1/completions");
  app.add_flag("--unary", unary, "no streaming");
  app.add_option("--connections", options.connections)->check(CLI::PositiveNumber);
  app.add_option("--requests", options.requests)->check(CLI::PositiveNumber);
  app.add_option("--warmup", options.warmup);
  app.add_option("--rate", options.rate, "open loop: requests per second");
  app.add_option("--max-tokens", options.max_tokens)->check(CLI::PositiveNumber);
  app.add_option("--prompt", options.prompt);
  app.add_option("--prompt-file", prompt_file);
  app.add_option("--corpus", corpus_file, "chat: a text that prompts are cut from, each another");
  app.add_option("--history-bytes", options.history_bytes,
                 "of the corpus in messages that all requests share");
  app.add_option("--turn-bytes", options.turn_bytes, "of the corpus in the last message");
  app.add_option("--prompt-tokens", options.prompt_tokens, "completions: a prompt of token ids");
  app.add_option("--pid", options.pid, "server process");
  app.add_option("--deadline", options.deadline_seconds);
  int clients = 32;
  int tokens = 500;
  int bytes = 250;
  double interval_ms = 6;
  CLI::App* floor = app.add_subcommand("floor", "CPU of bare paced sends");
  floor->add_option("--clients", clients)->check(CLI::PositiveNumber);
  floor->add_option("--tokens", tokens)->check(CLI::PositiveNumber);
  floor->add_option("--bytes", bytes)->check(CLI::PositiveNumber);
  floor->add_option("--interval-ms", interval_ms);
  CLI11_PARSE(app, argc, argv);
  if (floor->parsed()) {
    std::puts(fairlead::loadgen::run_floor(clients, tokens, bytes, interval_ms).c_str());
    return 0;
  }
  if (!prompt_file.empty()) {
    options.prompt = read_file(prompt_file);
  }
  if (!corpus_file.empty()) {
    options.corpus = read_file(corpus_file);
  }
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) {
    std::fputs("--address must be HOST:PORT\n", stderr);
    return 2;
  }
  options.host = address.substr(0, colon);
  options.port = static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1)));
  options.chat = !completions;
  options.stream = !unary;
  const std::string report = fairlead::loadgen::run_load(options);
  std::puts(report.c_str());
  return report.find("\"failed\"") == std::string::npos ? 0 : 1;
}
