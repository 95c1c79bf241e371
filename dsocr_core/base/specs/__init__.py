"""Backends as a person names them: `eager`, `fast`, `vendor`, `endpoint:URL`, `command:TEMPLATE`,
`folder:PATH`, each with settings of its own. No torch: they are checked before anything is loaded."""
