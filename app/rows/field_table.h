#pragma once
#include <string_view>
#include <vector>

#include "app/rows/row.h"

/// The fields of a row, one line each, in tables by concern. read_fields (fields.h) walks them.
namespace tokenmill::rows {

/// Formats of rows as bits, for the fields they have.
enum Shapes : unsigned { kN = 1, kChat = 2, kText = 4, kBodies = kChat | kText, kAllShapes = kN | kBodies };

/// A field that is honoured.
struct Field {
  const char* name;
  unsigned shapes;
  void (*read)(ParsedRow&, const io::JsonValue&, std::string_view field);
};

/// A field whose meaning is known and not built: the neutral value changes nothing, any other is an error for the row.
struct NeutralField {
  const char* name;
  unsigned shapes;
  bool (*neutral)(const io::JsonValue&);  ///< null is always neutral
  const char* neutral_text;               ///< "only X" in messages; nullptr: only null
  const char* instead = nullptr;          ///< the field of this version that means the same
  const char* advice = nullptr;           ///< what else comes near, for messages
  bool foreign = false;                   ///< only other programs have it: a native row may have a column of that name
};

const std::vector<Field>& sampling_fields();  ///< what the sampler and the end of a sequence take
const std::vector<Field>& prompt_fields();    ///< how the prompt is made
const std::vector<Field>& answer_fields();    ///< what the result holds
const std::vector<NeutralField>& neutral_fields();

}  // namespace tokenmill::rows
