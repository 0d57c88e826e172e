/** 256 common English words of three letters: one for each value of a byte. Such words are mostly one token in the vocabularies of real models. */
export const words: readonly string[] = `
  act add age ago aid aim air all and any arc are arm art ash ask ate bad bag ban bar bat bay bed bee beg bet
  bid big bit bow box boy bud bug bus but buy cab can cap car cat cop cow cry cup cut dad dam day den dew did
  die dig dim dip dog dot dry due ear eat egg elk end era eve eye fan far fat fed fee few fig fin fit fix fly
  fog for fox fun fur gap gas get got gum guy gym had ham has hat hay hen her hid him hip his hit hop hot how
  hub hug hut ice ill ink inn ion its ivy jam jar jaw jet job jog joy key kid kin kit lab lad lag lap law lay
  led leg let lid lie lip log lot low mad man map mat may men met mix mom mud mug net new nod nor not now nut
  oak odd off oil old one our out owl own pad pan pat paw pay pen pet pie pig pin pit pop pot pro put rag ran
  rat raw ray red rib rid rim rip rod row rub rug run sad sat saw say sea see set she shy sip sit six sky son
  spy sum sun tag tan tap tax tea ten the tie tin tip toe ton too top toy try two use van vet via war was wax way
  web wet who why win wit won yes yet you zip zoo
`
  .trim()
  .split(/\s+/);
