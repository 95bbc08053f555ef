#include "app/rows/field_table.h"
#include "app/rows/values.h"

namespace tokenmill::rows {
namespace {

template <bool AnswerOptions::*member>
void set_answer(ParsedRow& row, const io::JsonValue& value, std::string_view field) {
  row.settings.answer.*member = read_boolean(value, field);
}

}  // namespace

const std::vector<Field>& answer_fields() {
  using A = AnswerOptions;
  static const std::vector<Field> table = {
      {"return_token_ids", kAllShapes, set_answer<&A::return_token_ids>},
      {"return_prompt_text", kAllShapes, set_answer<&A::return_prompt_text>},
      {"return_tokens_as_token_ids", kAllShapes, set_answer<&A::return_tokens_as_token_ids>},
      {"flat_logprobs", kN, set_answer<&A::flat_logprobs>},
      {"echo", kAllShapes, set_answer<&A::echo>},
  };
  return table;
}

}  // namespace tokenmill::rows
