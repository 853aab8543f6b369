#include <array>

#include "cli/command.hpp"
#include "cli/commands.hpp"
#include "cli/tables.hpp"

int main(int argc, char** argv) {
  using namespace fairlead::cli;
  const auto commands = std::to_array<Command>({
      {"serve", "Answer the OpenAI API with the engines of a fleet", "", serve_table(), run_serve},
      {"demo", "A frontend with two simulated engines, to try it out", "", demo_table(), run_demo},
      {"mock-engine", "Play an inference engine, for tests and benchmarks", "", mock_engine_table(),
       run_mock_engine},
      {"probe", "Print what an engine reports", "URL", probe_table(), run_probe},
      {"tokenize", "Text to token ids and back, one JSON line each", "", tokenize_table(),
       run_tokenize},
      {"render", "Conversations to prompts, one JSON line each", "", render_table(), run_render},
      {"config", "Check serve's options, or print their documentation", "check|docs", serve_table(),
       run_config},
      {"version", "Print the version", "", {}, run_version},
  });
  return run_program(commands, argc, argv);
}
