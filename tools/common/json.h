/* json.h - what the programs' JSON has in common. */
#ifndef K3_TOOLS_JSON_H
#define K3_TOOLS_JSON_H

#include <jansson.h>

/* n bytes of a file or of its name as a JSON string. JSON holds only UTF-8; what is none becomes '?'. NULL when memory
 * is out. */
json_t *k3_json_text(const char *text, size_t n);

#endif
